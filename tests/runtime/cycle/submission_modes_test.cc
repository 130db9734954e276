// Negotiated beside in-order submission: each mode has its own order, so ranks may interleave
// operations of the two modes in any way and number.
#include "tests/support/sanitizers.h"
#include "tests/support/sized_worlds.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::submission_modes_test {
namespace {

/// Parameters: the size of the world and KOLO_SHARED_MEMORY.
class TwoModes : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, TwoModes,
                         testing::Combine(testing::Values(2, 3), testing::Values("0", "1M")));

/// More operations of a mode than can run at once; none are fused.
constexpr int kCalls = kSanitized ? 6 : 10;

struct Calls {
  std::vector<std::vector<float>> values;
  std::vector<std::shared_ptr<Work>> works;

  Calls(int rank, std::size_t elements)
      : values(kCalls, std::vector<float>(elements, static_cast<float>(rank + 1))) {}
  void submit_named(Runtime& runtime) {
    for (int i = 0; i < kCalls; ++i)
      works.push_back(submit(runtime, allreduce_of("t" + std::to_string(i), value_of(i))));
  }
  void submit_ordered(Runtime& runtime) {
    for (int i = 0; i < kCalls; ++i) {
      auto work = runtime.submit_ordered(allreduce_of("", value_of(i)));
      ASSERT_TRUE(work.ok()) << work.error().message;
      works.push_back(*std::move(work));
    }
  }
  void expect_sums(int size) {
    for (const auto& work : works) {
      const Status status = work->wait();
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    const auto sum = static_cast<float>(size * (size + 1) / 2);
    for (const auto& vector : values) EXPECT_EQ(vector, std::vector<float>(vector.size(), sum));
  }
  std::vector<float>& value_of(int i) { return values[static_cast<std::size_t>(i)]; }
};

/// All ranks but `late` begin with in-order submission; `late` first waits for the negotiated
/// operations.
void expect_no_order(const LocalWorldOptions& options, int size, int late, std::size_t ordered) {
  constexpr std::size_t kAlone = 300'000;  // too large to be fused
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        Calls named(rank, kAlone);
        Calls in_order(rank, ordered);
        if (rank != late) in_order.submit_ordered(runtime);
        named.submit_named(runtime);
        named.expect_sums(size);
        if (rank == late) in_order.submit_ordered(runtime);
        in_order.expect_sums(size);
      },
      options);
}

TEST_P(TwoModes, KeepNoOrderBetweenThem) {
  LocalWorldOptions options = this->options();
  options.variables["KOLO_OPERATION_TIMEOUT"] = "20";
  for (const std::size_t ordered : {std::size_t{16}, std::size_t{20'000}, std::size_t{300'000}})
    for (int late = 0; late < size(); ++late) expect_no_order(options, size(), late, ordered);
}

}  // namespace
}  // namespace kolo::test::submission_modes_test
