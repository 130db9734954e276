// Works of ProcessGroupKolo, under mpirun: waiting, polling, futures, timeouts, and groups that are
// destroyed before their works.
#include "tests/bindings/c10d/group_fixture.h"
#include "tests/support/message_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/record_function.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace kolo::test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST_F(ProcessGroup, WorksThatAreLookedAt) {
  Tensors tensors{mine(100000).view({100, 1000}).t()};
  const auto work = group_->allreduce(tensors);
  while (!work->isCompleted()) std::this_thread::yield();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(100000).view({100, 1000}).t()));  // without a wait
  EXPECT_TRUE(work->isSuccess());
  EXPECT_EQ(work->exception(), nullptr);
  EXPECT_TRUE(torch::equal(work->result()[0], tensors[0]));
  EXPECT_EQ(work->retrieveOpType(), c10d::OpType::ALLREDUCE);
  EXPECT_EQ(work->getSequencenumber(), 1U);
  EXPECT_EQ(group_->getSequenceNumberForGroup(), 1U);
  EXPECT_TRUE(work->wait());
}

TEST_F(ProcessGroup, ManyUnderWayAndNobodyWaits) {
  std::vector<Tensors> all;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 100; ++i) {
    all.push_back({mine(1 + i * 37)});
    works.push_back(group_->allreduce(all.back()));
  }
  for (std::size_t i = works.size(); i-- > 0;) {
    while (!works[i]->isCompleted()) std::this_thread::yield();
    EXPECT_TRUE(torch::equal(all[i][0], sum_of(1 + static_cast<std::int64_t>(i) * 37))) << i;
  }
}

// Reads a future right after waiting for the work, as c10d::Reducer does.
TEST_F(ProcessGroup, AFutureIsCompleteWhenTheWorkIs) {
  for (int i = 0; i < 100; ++i) {
    Tensors tensors{mine(1 + i).view({1, -1}).t()};
    const auto work = group_->allreduce(tensors);
    const auto future = work->getFuture();
    if (i % 2 == 0) {
      work->wait();
    } else {
      while (!work->isCompleted()) std::this_thread::yield();
    }
    ASSERT_TRUE(future->completed()) << i;
    EXPECT_TRUE(torch::equal(future->value().toTensorVector().at(0), sum_of(1 + i).view({-1, 1})));
  }
  Tensors tensors{mine(3)};
  const auto work = group_->allreduce(tensors);
  work->wait();
  EXPECT_TRUE(work->getFuture()->completed()) << "asked for afterwards";
}

#ifdef C10D_BACKEND_HAS_HOOKS
TEST_F(ProcessGroup, HooksLearnWhichWorksHaveSucceeded) {
  std::mutex mutex;
  std::vector<std::uint64_t> completed;
  std::vector<std::uint64_t> expected;
  int failures = 0;
  const auto call = [&](bool fits) {
    Tensors own{fits ? mine(4)
                     : mine(4, rank() > 0 && is_last() ? torch::kInt32 : torch::kFloat32)};
    std::vector<Tensors> outputs(1);
    if (rank() == 0) outputs[0] = Tensors(static_cast<std::size_t>(size()), torch::empty({4}));
    if (rank() != 0) outputs.clear();
    const auto work = group_->gather(outputs, own);
    EXPECT_EQ(message_of([&] { work->wait(); }) == "(no error)", fits || size() == 1);
    return work->getCompletionKey();
  };
  group_->registerAbortHook(1, [&] { ++failures; });
  call(true);  // begins before there is a hook
  group_->registerCompletionHook(1, [&](const c10d::CompletionHookArgs& of) {
    EXPECT_FALSE(of.duration_ms.has_value());
    const std::lock_guard lock(mutex);
    completed.push_back(of.completionKey);
  });
  for (int i = 0; i < 3; ++i) expected.push_back(call(true));
  EXPECT_EQ(failures, 0);
  const auto failed = call(false);
  if (size() == 1) expected.push_back(failed);
  EXPECT_EQ(failures, size() == 1 ? 0 : 1);
  group_->unregisterCompletionHook(1);
  call(true);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(completed, expected);
}
#endif

// torch.distributed turns asyncOp off unless it is called with async_op=True.
TEST_F(ProcessGroup, ABlockingCallEndsBeforeItReturnsNull) {
  c10d::AllreduceOptions blocking;
  blocking.asyncOp = false;
  const auto call = [&](std::int64_t count) {
    Tensors tensors{mine(count)};
    auto work = group_->allreduce(tensors, blocking);
    EXPECT_TRUE(work != nullptr || torch::equal(tensors[0], sum_of(count))) << count;
    return work;
  };
  for (const std::int64_t count : {1, 3000, 1000000}) EXPECT_EQ(call(count), nullptr) << count;
  EXPECT_EQ(group_->getSequenceNumberForGroup(), 3U);

  std::vector<Tensors> outputs(rank() == 0 ? 1 : 0);
  if (rank() == 0) outputs[0] = Tensors(static_cast<std::size_t>(size()), torch::empty({4}));
  Tensors own{mine(4, is_last() ? torch::kInt32 : torch::kFloat32)};
  if (size() > 1) {
    EXPECT_THAT(message_of([&] { group_->gather(outputs, own, {.asyncOp = false}); }),
                HasSubstr("type"));
  }

  group_->startCoalescing();
  EXPECT_NE(call(1), nullptr);
  group_->endCoalescing()->wait();
#ifdef C10D_BACKEND_HAS_HOOKS
  std::uint64_t completed = 0;
  group_->registerCompletionHook(1, [&](const auto& of) { completed = of.completionKey; });
  const auto work = call(1);  // the hook knows it by its key
  work->wait();
  EXPECT_EQ(completed, work->getCompletionKey());
  group_->unregisterCompletionHook(1);
  EXPECT_EQ(call(1), nullptr);
#endif
}

TEST_F(ProcessGroup, TheProfilerSeesTitlesAndInputs) {
  static std::mutex mutex;
  static std::vector<std::string> begun;
  static std::vector<std::string> ended;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
            const std::lock_guard lock(mutex);
            const std::string shape =
                call.inputs().empty() ? "" : c10::str(call.inputs()[0].toTensor().sizes());
            begun.push_back(std::string(call.name()) + shape);
            return nullptr;
          },
          [](const at::RecordFunction& call, at::ObserverContext*) {
            const std::lock_guard lock(mutex);
            ended.emplace_back(call.name());
          })
          .needsInputs(true)
          .scopes({at::RecordScope::USER_SCOPE}));
  Tensors tensors{mine(6).view({2, 3})};
  group_->allreduce(tensors)->wait();
  const auto barrier = group_->barrier();
  while (!barrier->isCompleted()) std::this_thread::yield();
  std::vector<Tensors> outputs(1, of_all(4));
  Tensors inputs{mine(4)};
  group_->allgather(outputs, inputs)->wait();
  at::removeCallback(handle);
  EXPECT_EQ(begun, (std::vector<std::string>{"kolo:all_reduce[2, 3]", "kolo:barrier",
                                             "kolo:all_gather[4]"}));
  EXPECT_EQ(ended,
            (std::vector<std::string>{"kolo:all_reduce", "kolo:barrier", "kolo:all_gather"}));
}

TEST_F(ProcessGroup, FuturesRunTheirCallbacksElsewhere) {
  std::promise<std::thread::id> thread;
  std::vector<Tensors> outputs(1);
  for (int r = 0; r < size(); ++r) outputs[0].push_back(torch::empty({5}));
  Tensors inputs{mine(5)};
  const auto call_back = [&](const c10::ivalue::Future&) {
    thread.set_value(std::this_thread::get_id());
  };
  const auto start = [&] {
    const auto work = group_->allgather(outputs, inputs);
    const auto future = work->getFuture();
    EXPECT_EQ(future, work->getFuture());
    future->addCallback(call_back);
    // The work itself may go.
  };
  if (rank() == 0) start();
  kolo::barrier();
  if (rank() != 0) start();
  const auto called_on = thread.get_future().get();
  // A callback that is added after completion runs at once.
  if (rank() == 0 && size() > 1) {
    EXPECT_NE(called_on, std::this_thread::get_id());
  }
  EXPECT_TRUE(torch::equal(outputs[0].back(), input_of(size() - 1, 5)));

  // A callback that calls the group, on the result.
  Tensors tensors{mine(3)};
  auto future = group_->allreduce(tensors)->getFuture()->then(
      [this](c10::ivalue::Future& done) -> c10::IValue {
        Tensors again{done.value().toTensorVector().at(0)};
        group_->allreduce(again)->wait();
        return again.at(0);
      },
      c10::TensorType::get());
  future->wait();
  EXPECT_TRUE(torch::equal(future->value().toTensor(), sum_of(3) * size()));
}

// Results of inference tensors are right whichever thread, with its own inference mode, writes
// them.
TEST_F(ProcessGroup, ResultsOfInferenceMode) {
  Tensors tensors;
  c10::intrusive_ptr<c10d::Work> looked_at;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const c10::InferenceMode inference;
    tensors = {mine(12).view({3, 4}).t(), mine(12).view({3, 4}).t()};
    Tensors first{tensors[0]};
    Tensors second{tensors[1]};
    future = group_->allreduce(first)->getFuture();
    looked_at = group_->allreduce(second);
  }
  future->waitAndThrow();
  while (!looked_at->isCompleted()) std::this_thread::yield();
  EXPECT_TRUE(looked_at->isSuccess());
  for (const torch::Tensor& tensor : tensors)
    EXPECT_TRUE(torch::equal(tensor, sum_of(12).view({3, 4}).t()));
}

TEST_F(ProcessGroup, ACallbackWaitsForAFutureOfItsOwn) {
  Tensors tensors{mine(3)};
  auto future = group_->allreduce(tensors)->getFuture()->then(
      [this](c10::ivalue::Future& done) -> c10::IValue {
        Tensors again{done.value().toTensorVector().at(0)};
        const auto inner = group_->allreduce(again)->getFuture();
        inner->wait();
        return inner->value().toTensorVector().at(0);
      },
      c10::TensorType::get());
  future->wait();
  EXPECT_TRUE(torch::equal(future->value().toTensor(), sum_of(3) * size()));
}

TEST_F(ProcessGroup, TheLastReferenceGoesInACallback) {
  Tensors tensors{mine(3)};
  std::promise<void> gone;
  auto future = group_->allreduce(tensors)->getFuture();
  future->addCallback([group = std::move(group_), &gone](c10::ivalue::Future&) mutable {
    group.reset();
    gone.set_value();
  });
  group_.reset();
  gone.get_future().get();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(3)));
}

TEST_F(ProcessGroup, AFutureOfAGroupThatIsGone) {
  Tensors tensors{mine(3)};
  const auto work = group_->allreduce(tensors);
  group_.reset();
  work->getFuture()->wait();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(3)));
}

TEST_F(ProcessGroup, WaitsThatAreBounded) {
  if (size() == 1) GTEST_SKIP() << "a wait for another rank needs two ranks";
  Tensors tensors{mine(4)};
  if (rank() == 0) {
    const auto work = group_->allreduce(tensors);
    EXPECT_THAT(
        message_of([&] { work->wait(std::chrono::milliseconds(20)); }),
        HasSubstr("c10d call 1 (ALLREDUCE) of rank 0 of the group is not done after 20 ms"));
    kolo::barrier();
    work->wait();
  } else {
    kolo::barrier();  // negotiated: rank 0 has waited in vain
    group_->allreduce(tensors)->wait();
  }
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(4)));
  group_->setTimeout(std::chrono::milliseconds(20));
  EXPECT_EQ(group_->getBackendOptions()->timeout, std::chrono::milliseconds(20));
  if (rank() == 0) {
    const auto work = group_->barrier();
    EXPECT_THAT(message_of([&] { work->wait(); }), HasSubstr("BARRIER"));
    kolo::barrier();
    work->wait(std::chrono::seconds(60));
  } else {
    kolo::barrier();
    group_->barrier()->wait(std::chrono::seconds(60));
  }
}

TEST_F(ProcessGroup, DeadlinesThatAreExtended) {
  if (size() == 1) GTEST_SKIP() << "nobody is waited for";
  const auto wait_in_vain = [&] { return message_of([&] { group_->barrier()->wait(); }); };
  group_->setTimeout(std::chrono::milliseconds(10));
  if (rank() == 0) {
    group_->addEphemeralTimeout(std::chrono::milliseconds(20));
    EXPECT_THAT(wait_in_vain(), HasSubstr("not done after 30 ms"));
    group_->addEphemeralTimeout(std::chrono::milliseconds(5));
    EXPECT_THAT(wait_in_vain(), HasSubstr("not done after 35 ms"));
    kolo::barrier();
    group_->barrier()->wait(std::chrono::seconds(60));  // after those two
    const auto last = group_->barrier();
    EXPECT_THAT(message_of([&] { last->wait(); }), HasSubstr("not done after 10 ms"));
    kolo::barrier();
    last->wait(std::chrono::seconds(60));
  } else {
    kolo::barrier();  // negotiated: rank 0 has waited in vain
    for (int i = 0; i < 3; ++i) group_->barrier()->wait(std::chrono::seconds(60));
    kolo::barrier();
    group_->barrier()->wait(std::chrono::seconds(60));
  }
}

}  // namespace
