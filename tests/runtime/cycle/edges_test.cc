// Rare uses: names of arbitrary bytes, very many tensors at once, giving up from a thread beside
// the one that waits, and a rank that stops for longer than the others wait.
#include "tests/support/faulty_transport.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <latch>
#include <string>
#include <thread>
#include <utility>

namespace kolo::test::edges_test {
namespace {

using testing::HasSubstr;

TEST(Names, MayBeAnyBytes) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    const std::string latin1 =
        "Gr\xf6\xdf"
        "e\xff";
    for (int step = 0; step < 2; ++step) {
      std::vector<float> values(3, static_cast<float>(rank + 1));
      ASSERT_DONE(submit(runtime, allreduce_of(latin1, values)));
      EXPECT_EQ(values.back(), 3.0F);
    }
    std::vector<float> values(rank == 0 ? 3 : 4);
    const Status status = submit(runtime, allreduce_of(latin1 + "2", values))->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message, HasSubstr("tensor '" + latin1 + "2': rank 0 submitted"));
  });
}

// The full requests need more bytes than one control message holds, and so do their errors.
TEST(Groups, OfVeryManyMembers) {
  constexpr std::size_t kMembers = 2500;
  run_local_world(2, [](int rank, Runtime& runtime) {
    const std::string group(250, 'g');
    for (int step = 0; step < 2; ++step) {
      std::deque<std::vector<float>> tensors;
      std::vector<Submission> members;
      for (std::size_t i = 0; i < kMembers; ++i) {
        const bool differs = step == 1 && rank == 1 && i == 7;
        tensors.emplace_back(differs ? 2 : 1, static_cast<float>(rank + 1));
        members.push_back(allreduce_of(group + "/" + std::to_string(i), tensors.back()));
      }
      const auto works = runtime.submit_group(std::move(members), group);
      ASSERT_TRUE(works.ok()) << works.error().message;
      for (const auto& work : *works) {
        const Status status = work->wait();
        ASSERT_EQ(status.ok(), step == 0);
        if (!status.ok()) {
          ASSERT_EQ(status.error().code, ErrorCode::kMismatch);
        }
      }
      EXPECT_EQ(tensors.back().front(), step == 0 ? 3.0F : static_cast<float>(rank + 1));
    }
  });
}

TEST(Abort, OfAnotherThreadEndsAWait) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    std::vector<float> values(3, 1.0F);
    if (rank == 1) {
      // Contributes only to the first operation.
      ASSERT_DONE(submit(runtime, allreduce_of("both", values)));
      std::vector<float> late(3, 1.0F);
      const Status status = submit(runtime, allreduce_of("of rank 1", late))->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(status.error().message, HasSubstr("rank 0 has given up: enough"));
      return;
    }
    ASSERT_DONE(submit(runtime, allreduce_of("both", values)));
    const auto work = submit(runtime, allreduce_of("of rank 0", values));
    std::atomic<bool> waits = false;
    std::thread waiting([&] {
      waits = true;
      const Status status = work->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(status.error().message, HasSubstr("rank 0 has given up: enough"));
    });
    while (!waits) std::this_thread::yield();
    // Until the waiting thread has taken over from the background thread.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    runtime.abort("enough");
    waiting.join();
  });
}

// A rank stops for longer than the others wait, and makes its call when they are in the next one.
// Its call fails, too, and the next calls match.
TEST(Timeout, FailsTheCallOfARankThatComesLateToo) {
  for (const auto& [capacity, late] : {std::pair("0", 1), std::pair("16", 0), std::pair("16", 1)}) {
    std::latch given_up(3);
    LocalWorldOptions options;
    options.variables = {{"KOLO_OPERATION_TIMEOUT", "1"}, {"KOLO_CACHE_CAPACITY", capacity}};
    run_local_world(
        3,
        [&, late = late](int rank, Runtime& runtime) {
          std::vector<float> values(4, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("a", values)));
          std::vector<float> first(4, 1.0F);
          if (rank == late) given_up.arrive_and_wait();
          const Status status = submit(runtime, allreduce_of("a", first))->wait();
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
          EXPECT_THAT(status.error().message,
                      HasSubstr(rank == late ? "1 call behind ranks" : "missing on rank"));
          std::vector<float> second(4, 1.0F);
          const auto work = submit(runtime, allreduce_of("a", second));
          if (rank != late) given_up.arrive_and_wait();
          ASSERT_DONE(work);
          EXPECT_EQ(second.front(), 3.0F);
        },
        options);
  }
}

// The rank announces the call before it hears that the others have given up.
TEST(Timeout, FailsACallThatCrossesItOnTheWayToo) {
  for (const std::string capacity : {"0", "16"}) {
    std::atomic<bool> deaf = false;
    std::atomic<bool> given_up = false;
    LocalWorldOptions options;
    options.variables = {{"KOLO_OPERATION_TIMEOUT", "1"}, {"KOLO_CACHE_CAPACITY", capacity}};
    options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
      auto faulty = std::make_unique<FaultyTransport>(
          std::move(inner), [](const FaultyCall&) { return Fault::kNone; });
      if (rank == 1) faulty->deafen(deaf);
      return faulty;
    };
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          std::vector<float> values(4, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("a", values)));
          std::vector<float> first(4, 1.0F);
          if (rank == 1) {
            deaf = true;
            given_up.wait(false);
            const auto crossing = submit(runtime, allreduce_of("a", first));
            const auto announced = [&] {
              const auto counters = runtime.negotiation_counters();
              return counters.requests + counters.cached == 2;
            };
            while (!announced()) std::this_thread::yield();
            deaf = false;
            const Status status = crossing->wait();
            ASSERT_FALSE(status.ok());
            EXPECT_THAT(status.error().message, HasSubstr("rank 1 is 1 call behind rank 0"));
          } else {
            // Before rank 1 is deaf, it would only hear of it sooner.
            while (!deaf) std::this_thread::yield();
            const Status status = submit(runtime, allreduce_of("a", first))->wait();
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
            given_up = true;
            given_up.notify_all();
          }
          std::vector<float> second(4, static_cast<float>(rank));
          ASSERT_DONE(submit(runtime, allreduce_of("a", second)));
          EXPECT_EQ(second.front(), 1.0F);
        },
        options);
  }
}

// Rank 0's sends do not leave and its receives do not complete, so operations that wait for the
// others would wait for ever, as the others wait for rank 0.
TEST(AFailedStep, FailsTheOperationOnAllRanksAtOnce) {
  for (const std::string algorithm : {"ring", "recursive_doubling"}) {
    std::atomic<bool> fails = false;
    std::atomic<int> ready = 0;
    LocalWorldOptions options;
    options.variables = {{"KOLO_ALGORITHM", algorithm}};
    options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
      return std::make_unique<FaultyTransport>(
          std::move(inner), [&fails, rank](const FaultyCall& call) {
            if (rank != 0 || !fails) return Fault::kNone;
            if (call.kind == FaultyCall::Kind::kSend) return Fault::kFail;
            return call.kind == FaultyCall::Kind::kReceive ? Fault::kDrop : Fault::kNone;
          });
    };
    run_local_world(
        4,
        [&](int, Runtime& runtime) {
          std::vector<float> values(100'000, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("a", values)));
          ASSERT_EQ(values.back(), 4.0F);
          // All ranks have finished the first operation before rank 0 begins to fail.
          if (++ready == 4) {
            fails = true;
            fails.notify_all();
          }
          fails.wait(false);
          const Status status = submit(runtime, allreduce_of("a", values))->wait();
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, HasSubstr("injected fault in send to rank"));
        },
        options);
  }
}

}  // namespace
}  // namespace kolo::test::edges_test
