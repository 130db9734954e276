// A rank that gives up an operation gets its arena memory back: peers that still work on the
// operation no longer change this memory, and none of them takes its new contents for a result.
// Ranks are threads; the thread sanitizer sees a peer that is late.
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <limits>
#include <span>
#include <thread>

namespace kolo::test::arena_abort_test {
namespace {

constexpr std::size_t kSchedules = 2 << 20;   ///< floats, several blocks
constexpr std::size_t kSegments = 256 << 10;  ///< floats, for Exchange
constexpr float kOthers = -1;                 ///< what users write once they have their memory back
constexpr int kRounds = 16;
constexpr int kLooks = 1000;  ///< polls of its own work, until it has begun

/// One all-reduce of two ranks, which rank 0 gives up after a number of polls. Returns the number
/// of polls.
int looks_until_given_up(std::size_t count, int longest) {
  int looks = 0;
  std::barrier<> start(2);
  std::barrier<> end(2);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        const auto memory =
            std::reinterpret_pointer_cast<float>(*runtime.allocate(count * sizeof(float)));
        const std::span<float> values(memory.get(), count);
        std::fill(values.begin(), values.end(), 1.0F);
        Submission submission;
        submission.signature.shape = {static_cast<std::int64_t>(count)};
        submission.input = reinterpret_cast<const std::byte*>(memory.get());
        submission.output = reinterpret_cast<std::byte*>(memory.get());
        start.arrive_and_wait();
        const auto work = runtime.submit_ordered(std::move(submission));
        if (rank == 0) {
          for (; looks < longest && !(*work)->done(); ++looks) std::this_thread::yield();
          runtime.abort("the test wants it");
        }
        // Work that rank 1 submits too late is refused.
        if (work.ok() && (*work)->wait().ok()) {
          EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return v == 2; }));
        }
        std::fill(values.begin(), values.end(), kOthers);
        end.arrive_and_wait();
        EXPECT_TRUE(
            std::all_of(values.begin(), values.end(), [](float v) { return v == kOthers; }));
      },
      {.variables = {{"KOLO_LOG_LEVEL", "off"}}});
  return looks;
}

class ArenaAbort : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Floats, ArenaAbort, testing::Values(kSchedules, kSegments));

TEST_P(ArenaAbort, MemoryThatIsGivenBackIsLeftAlone) {
  const int whole = looks_until_given_up(GetParam(), std::numeric_limits<int>::max());
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    // Give up later and later within the operation.
    looks_until_given_up(GetParam(), whole / kRounds * (round + 1));
  }
}

/// Receives nothing until it may, and then only after a number of progress() calls.
class LateTransport final : public FaultyTransport {
 public:
  LateTransport(std::unique_ptr<Transport> inner, std::atomic<int>& deaf_for)
      : FaultyTransport(std::move(inner), [](const FaultyCall&) { return Fault::kNone; }),
        deaf_for_(deaf_for) {}
  bool progress() override {
    if (deaf_for_ == 0) return FaultyTransport::progress();
    if (deaf_for_ > 0) --deaf_for_;
    return false;
  }

 private:
  std::atomic<int>& deaf_for_;  ///< calls; below zero: forever
};

// Rank 0 was told first and gives up memory that rank 2 must read. Its error must not be reported
// as the reason.
TEST(ArenaAbortReason, WhoHasToGiveUpIsNotBlamed) {
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> deaf_for = 0;
    std::barrier<> all(3);
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          const auto memory =
              std::reinterpret_pointer_cast<float>(*runtime.allocate(kSegments * sizeof(float)));
          Submission submission;
          submission.signature.shape = {static_cast<std::int64_t>(kSegments)};
          submission.input = reinterpret_cast<const std::byte*>(memory.get());
          submission.output = reinterpret_cast<std::byte*>(memory.get());
          if (rank == 2) deaf_for = -1;
          all.arrive_and_wait();
          if (rank == 2) {
            all.arrive_and_wait();
            deaf_for = 50;
          }
          const auto work = runtime.submit_ordered(std::move(submission));
          for (int look = 0; rank == 1 && look < kLooks; ++look) std::this_thread::yield();
          if (rank == 1) runtime.abort("the test wants it");
          const Status status = work.ok() ? (*work)->wait() : Status(work.error());
          EXPECT_THAT(status.ok() ? "success" : status.error().message,
                      testing::HasSubstr("rank 1 has given up: the test wants it"));
          if (rank != 2) all.arrive_and_wait();
        },
        {.variables = {{"KOLO_LOG_LEVEL", "off"}},
         .decorate = [&](int rank, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
           if (rank != 2) return inner;
           return std::make_unique<LateTransport>(std::move(inner), deaf_for);
         }});
  }
}

}  // namespace
}  // namespace kolo::test::arena_abort_test
