// Steps that repeat: ranks agree on them without rank 0, until something differs. On one host, on
// two, and each on a host of its own.
#include "tests/support/rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::locked_plan_test {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;

/// Only a caller that waits has its tensors announced, so those of a step are in one list.
LocalWorldOptions options() {
  return {.variables = {{"KOLO_PLAN_LOCK", "1"},
                        {"KOLO_BATCH_WINDOW", "1000000"},
                        {"KOLO_OPERATION_TIMEOUT", "20"}}};
}

class Trainer {
 public:
  explicit Trainer(Runtime& runtime, std::uint32_t process_set = 0)
      : runtime_(runtime), process_set_(process_set) {}

  std::shared_ptr<Work> call(const std::string& name, std::vector<float>& values) {
    Submission submission = allreduce_of(name, values);
    submission.step = step_;
    submission.process_set = process_set_;
    return submit(runtime_, std::move(submission));
  }
  /// Some steps of three tensors, to which each of `ranks` contributes 1.
  void train(int steps, int ranks = kRanks) {
    for (int i = 0; i < steps; ++i) {
      ++step_;
      std::vector<std::vector<float>> tensors(3, std::vector<float>(5, 1.0F));
      std::vector<std::shared_ptr<Work>> works;
      for (std::size_t t = 0; t < tensors.size(); ++t)
        works.push_back(call("t" + std::to_string(t), tensors[t]));
      for (const auto& work : works) ASSERT_DONE(work);
      for (const auto& tensor : tensors) ASSERT_EQ(tensor.back(), static_cast<float>(ranks));
    }
  }
  /// Trains until plans have been followed since the last call.
  void train_by_plan() {
    const std::uint64_t before = planned();
    train(40);
    EXPECT_GT(planned(), before);
  }
  void join() {
    Submission join;
    join.signature.kind = OperationKind::kJoin;
    ASSERT_DONE(submit(runtime_, std::move(join)));
  }
  std::uint64_t planned() { return runtime_.negotiation_counters(process_set_).planned; }

 private:
  Runtime& runtime_;
  const std::uint32_t process_set_;

 public:
  std::uint64_t step_ = 0;
};

class LockedPlanOn : public testing::TestWithParam<std::vector<int>> {
 protected:
  static LocalWorldOptions options() {
    LocalWorldOptions options = locked_plan_test::options();
    options.hosts = GetParam();
    return options;
  }
  static void run(const std::function<void(int rank, Trainer& trainer)>& body) {
    run_local_world(
        kRanks,
        [&](int rank, Runtime& runtime) {
          Trainer trainer(runtime);
          body(rank, trainer);
        },
        options());
  }
};
INSTANTIATE_TEST_SUITE_P(Hosts, LockedPlanOn,
                         testing::Values(std::vector{0, 0, 0}, std::vector{0, 0, 1},
                                         std::vector{0, 1, 0}, std::vector{0, 1, 2}),
                         [](const auto& hosts) {
                           return fmt::format("{}", fmt::join(hosts.param, "_"));
                         });

TEST(LockedPlan, NeedsNoMessages) {
  std::barrier turn(kRanks);
  std::atomic<bool> has_sent = true;
  run_local_world(
      kRanks,
      [&](int, Runtime& runtime) {
        Trainer trainer(runtime);
        trainer.train_by_plan();
        // Where a rank waits for a core for too long, a plan ends.
        for (bool again = true; again;) {
          const std::uint64_t before = runtime.negotiation_counters().messages;
          turn.arrive_and_wait();
          has_sent = false;
          turn.arrive_and_wait();
          trainer.train(20);
          if (runtime.negotiation_counters().messages != before) has_sent = true;
          turn.arrive_and_wait();
          again = has_sent;
        }
      },
      options());
}

TEST_P(LockedPlanOn, EndsForATensorThatItLacks) {
  run([](int rank, Trainer& trainer) {
    for (int round = 0; round < 5; ++round) {
      trainer.train_by_plan();
      std::vector<float> values(static_cast<std::size_t>(round) + 1, 1.0F);
      const auto more = trainer.call("more", values);
      if (rank == round % kRanks) {
        ASSERT_DONE(more);  // before its next step
        trainer.train(1);
      } else {
        trainer.train(1);
        ASSERT_DONE(more);
      }
      EXPECT_EQ(values.back(), 3.0F);
    }
  });
}

TEST_P(LockedPlanOn, EndsForAnotherShapeWhichFailsOnAllRanks) {
  run([](int rank, Trainer& trainer) {
    for (int odd = 0; odd < kRanks; ++odd) {
      trainer.train_by_plan();
      ++trainer.step_;
      std::vector<float> values(rank == odd ? 7 : 5, 1.0F);
      std::vector<float> others(5, 1.0F);
      const auto work = trainer.call("t1", values);
      const auto other = trainer.call("t0", others);
      const Status status = work->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
      EXPECT_THAT(status.error().message, HasSubstr("[7]"));
      ASSERT_DONE(other);
      EXPECT_EQ(others.back(), 3.0F);
    }
    trainer.train_by_plan();
  });
}

TEST_P(LockedPlanOn, EndsForACallerThatWaitsBeforeItGoesOn) {
  run([](int rank, Trainer& trainer) {
    for (int round = 0; round < 3; ++round) {
      trainer.train_by_plan();
      ++trainer.step_;
      // One rank wants the sum of a tensor before it has the others.
      std::vector<std::vector<float>> tensors(3, std::vector<float>(5, 1.0F));
      const auto first = trainer.call("t0", tensors[0]);
      if (rank == round) ASSERT_DONE(first);
      const auto second = trainer.call("t1", tensors[1]);
      const auto third = trainer.call("t2", tensors[2]);
      ASSERT_DONE(first);
      ASSERT_DONE(second);
      ASSERT_DONE(third);
      for (const auto& tensor : tensors) EXPECT_EQ(tensor.back(), 3.0F);
    }
  });
}

TEST_P(LockedPlanOn, EndsForARankAtAnotherStep) {
  run([](int rank, Trainer& trainer) {
    for (int odd = 0; odd < kRanks; ++odd) {
      trainer.train_by_plan();
      trainer.step_ += rank == odd ? 2 : 1;  // this rank has skipped a step
      std::vector<float> values(5, 1.0F);
      const auto work = trainer.call("t0", values);
      const Status status = work->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
      EXPECT_THAT(status.error().message, HasSubstr("has left"));
      trainer.step_ = static_cast<std::uint64_t>(work->outcome().value);
    }
    trainer.train_by_plan();
  });
}

TEST_P(LockedPlanOn, EndsForAJoin) {
  run([](int rank, Trainer& trainer) {
    for (int early = 0; early < kRanks; ++early) {
      trainer.train_by_plan();
      if (rank != early) trainer.train(3, kRanks - 1);
      trainer.join();
      trainer.step_ = static_cast<std::uint64_t>(100 * (early + 1));
    }
    trainer.train_by_plan();
  });
}

TEST_P(LockedPlanOn, EndsForARankThatLeaves) {
  run([](int rank, Trainer& trainer) {
    trainer.train_by_plan();
    if (rank == 1) return;
    std::vector<float> values(5, 1.0F);
    ++trainer.step_;
    const Status status = trainer.call("t0", values)->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(status.error().message, HasSubstr("rank 1"));
  });
}

TEST_P(LockedPlanOn, EndsForCallsBySomeRanksAfterTheOthersHaveLeft) {
  for (int first = 1; first < kRanks; ++first) {  // rank 0 decides
    std::atomic<bool> has_left = false;
    run_local_world(
        kRanks,
        [&](int rank, Runtime& runtime) {
          Trainer trainer(runtime);
          trainer.train_by_plan();
          if (rank == first) {
            ASSERT_TRUE(runtime.shut_down());
            has_left = true;
            has_left.notify_all();
            return;
          }
          has_left.wait(false);
          Submission add;
          add.signature = {.kind = OperationKind::kAddProcessSet, .root = kByItsRanks};
          for (int member = 0; member < kRanks; ++member)
            if (member != first) add.signature.shape.push_back(member);
          ASSERT_DONE(submit(runtime, std::move(add)));
        },
        options());
  }
}

TEST_P(LockedPlanOn, IsFollowedWhileACallerWaitsInAnInOrderCall) {
  auto with_set = options();
  with_set.process_sets = {{0, 1}};
  run_local_world(
      kRanks,
      [](int rank, Runtime& runtime) {
        Trainer trainer(runtime);
        trainer.train_by_plan();
        for (int i = 0; i < 20; ++i) {
          ++trainer.step_;
          std::vector<std::vector<float>> tensors(3, std::vector<float>(5, 1.0F));
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t t = 0; t < tensors.size(); ++t)
            works.push_back(trainer.call("t" + std::to_string(t), tensors[t]));
          // Rank 1 comes to the call once it has the sums, which need rank 0.
          float one = 1.0F;
          const auto call_in_order = [&] {
            auto* const value = reinterpret_cast<std::byte*>(&one);
            const Status status = runtime.call_ordered(
                {.input = value, .output = value, .count = 1, .process_set = 1});
            ASSERT_TRUE(status.ok()) << status.error().message;
          };
          if (rank == 0) call_in_order();
          for (const auto& work : works) ASSERT_DONE(work);
          if (rank == 1) call_in_order();
          EXPECT_EQ(one, rank == 2 ? 1.0F : 2.0F);
        }
      },
      with_set);
}

TEST_P(LockedPlanOn, OfAProcessSetEndsAlone) {
  auto with_set = options();
  with_set.process_sets = {{0, 2}};
  run_local_world(
      kRanks,
      [](int rank, Runtime& runtime) {
        Trainer world(runtime);
        world.train_by_plan();
        if (rank != 1) {
          Trainer set(runtime, 1);
          set.train(20, 2);
          std::vector<float> values(5, 1.0F);
          ASSERT_DONE(set.call("more", values));
          set.train(20, 2);
          EXPECT_GT(set.planned(), 0U);
        }
        const std::uint64_t before = runtime.negotiation_counters().agreements;
        world.train(20);
        EXPECT_GT(runtime.negotiation_counters().agreements, before);
      },
      with_set);
}

}  // namespace
}  // namespace kolo::test::locked_plan_test
