// Collectives other than all-reduce with inputs and outputs in the arena, which the peers read in
// place. Every rank has its own mixture of shared and private memory. One or all operations run at
// a time, in both submission modes, over windows of several sizes and by messages, and on several
// hosts. Ranks are threads.
#include "tests/support/arena_memory.h"
#include "tests/support/sanitizers.h"
#include "tests/support/sized_worlds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace kolo::test::arena_moves_test {
namespace {

/// Parameters: the size of the world and KOLO_SHARED_MEMORY; "0" means no windows, so no arena.
class ArenaMoves : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, ArenaMoves,
                         testing::Combine(testing::Values(2, 3, 5),
                                          testing::ValuesIn(fewer_if_sanitized({"0", "256K",
                                                                                "16M"}))));

constexpr OperationKind kKinds[] = {OperationKind::kBroadcast, OperationKind::kAllgather,
                                    OperationKind::kAlltoall,  OperationKind::kReduceScatter,
                                    OperationKind::kGather,    OperationKind::kScatter};
/// Floats of one rank's part: just more than messages carry, and more than the pipeline slots of
/// every window.
constexpr std::size_t kCounts[] = {5'003, 150'001};

/// One rank's memory for one operation, and the expected result.
struct Call {
  Call(Runtime& runtime, OperationKind of_kind, std::size_t part, std::size_t rank,
       std::size_t ranks, Shared shared)
      : kind(of_kind) {
    const bool gathers = kind == OperationKind::kGather;
    const bool scatters = kind == OperationKind::kScatter;
    const bool whole_in =
        scatters || kind == OperationKind::kAlltoall || kind == OperationKind::kReduceScatter;
    const bool whole_out =
        gathers || kind == OperationKind::kAllgather || kind == OperationKind::kAlltoall;
    if (gathers || scatters) root = ranks - 1;
    inputs = whole_in ? part * ranks : part;
    outputs = whole_out ? part * ranks : part;
    if (scatters && rank != root) inputs = 0;
    if (gathers && rank != root) outputs = 0;
    input = floats(runtime, inputs, shared.input);
    set_elements({input.get(), inputs}, rank, 0);
    // A broadcast is in place.
    output = kind == OperationKind::kBroadcast ? input : floats(runtime, outputs, shared.output);
    expected.resize(outputs);
    const std::span<float> all = expected;
    if (kind == OperationKind::kBroadcast || scatters)
      set_elements(all, root, scatters ? rank * part : 0);
    if (kind == OperationKind::kReduceScatter)
      for (std::size_t r = 0; r < ranks; ++r) add_elements(all, r, rank * part);
    if (whole_out && outputs > 0)
      for (std::size_t r = 0; r < ranks; ++r)
        set_elements(all.subspan(r * part, part), r,
                     kind == OperationKind::kAlltoall ? rank * part : 0);
  }

  Submission submission(std::string name) const {
    Submission made;
    made.name = std::move(name);
    made.signature.kind = kind;
    made.signature.root = static_cast<int>(root);
    made.signature.shape = {static_cast<std::int64_t>(inputs)};
    made.input = reinterpret_cast<const std::byte*>(input.get());
    auto* const data = reinterpret_cast<std::byte*>(output.get());
    made.output = data;
    if (kind != OperationKind::kBroadcast) made.allocate = [data](const Shape&) { return data; };
    return made;
  }

  OrderedArguments arguments(std::size_t part) const {
    return {.kind = kind,
            .input = reinterpret_cast<const std::byte*>(input.get()),
            .output = reinterpret_cast<std::byte*>(output.get()),
            .count = static_cast<std::int64_t>(part),
            .root = static_cast<int>(root)};
  }

  void expect_right(std::size_t rank) const {
    ASSERT_EQ(difference({output.get(), outputs}, expected), "");
    if (kind == OperationKind::kBroadcast) return;
    std::vector<float> unchanged(inputs);
    set_elements(unchanged, rank, 0);
    ASSERT_EQ(difference({input.get(), inputs}, unchanged), "") << "the input was written";
  }

  OperationKind kind;
  std::size_t root = 0;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::shared_ptr<float> input;
  std::shared_ptr<float> output;
  std::vector<float> expected;
};

void one_at_a_time(int size, const LocalWorldOptions& options,
                   std::span<const std::size_t> counts) {
  const auto ranks = static_cast<std::size_t>(size);
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        const auto me = static_cast<std::size_t>(rank);
        for (const std::size_t part : counts)
          for (std::size_t shift = 0; shift < kRounds; ++shift)
            for (const OperationKind kind : kKinds) {
              SCOPED_TRACE(fmt::format("rank {}: {}, {} a rank, mixture {}", rank, to_string(kind),
                                       part, shift));
              const Call call(runtime, kind, part, me, ranks, mixture(me, shift));
              const Status status = runtime.call_ordered(call.arguments(part));
              ASSERT_TRUE(status.ok()) << status.error().message;
              ASSERT_NO_FATAL_FAILURE(call.expect_right(me));
            }
      },
      options);
}

void all_at_once(int size, const LocalWorldOptions& options, std::span<const std::size_t> counts) {
  const auto ranks = static_cast<std::size_t>(size);
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        const auto me = static_cast<std::size_t>(rank);
        for (std::size_t round = 0; round < kRounds; ++round) {
          std::vector<Call> calls;
          std::vector<std::shared_ptr<Work>> works;
          for (const std::size_t part : counts)
            for (const OperationKind kind : kKinds) {
              const std::size_t shift = (round + calls.size()) % kRounds;
              calls.emplace_back(runtime, kind, part, me, ranks, mixture(me, shift));
              works.push_back(
                  submit(runtime, calls.back().submission(fmt::format("{}", calls.size()))));
            }
          for (std::size_t i = 0; i < calls.size(); ++i) {
            SCOPED_TRACE(
                fmt::format("rank {}: {} in round {}", rank, to_string(calls[i].kind), round));
            const Status status = works[i]->wait();
            ASSERT_TRUE(status.ok()) << status.error().message;
            ASSERT_NO_FATAL_FAILURE(calls[i].expect_right(me));
          }
        }
      },
      options);
}

TEST_P(ArenaMoves, OneAtATimeInOrder) { one_at_a_time(size(), options(), kCounts); }

TEST_P(ArenaMoves, AllAtOnceByName) { all_at_once(size(), options(), kCounts); }

/// Parameters: the ranks' hosts and KOLO_SHARED_MEMORY.
class ArenaMovesOverHosts
    : public testing::TestWithParam<std::tuple<std::vector<int>, std::string>> {
 protected:
  int size() const { return static_cast<int>(std::get<0>(GetParam()).size()); }
  LocalWorldOptions options() const {
    LocalWorldOptions options;
    options.hosts = std::get<0>(GetParam());
    options.variables = {{"KOLO_SHARED_MEMORY", std::get<1>(GetParam())}};
    return options;
  }
  /// More elements than any two-level threshold, including a broadcast's.
  static constexpr std::size_t kLarge[] = {12'007, kSanitized ? 5'003 : 600'001};
};
INSTANTIATE_TEST_SUITE_P(
    HostsAndWindows, ArenaMovesOverHosts,
    testing::Combine(testing::Values(std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 0, 0, 1},
                                     std::vector<int>{0, 1, 0, 1, 2}),
                     testing::ValuesIn(fewer_if_sanitized({"0", "512K", "16M"}))));

TEST_P(ArenaMovesOverHosts, OneAtATimeInOrder) { one_at_a_time(size(), options(), kLarge); }

TEST_P(ArenaMovesOverHosts, AllAtOnceByName) { all_at_once(size(), options(), kLarge); }

}  // namespace
}  // namespace kolo::test::arena_moves_test
