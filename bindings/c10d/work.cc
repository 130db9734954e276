#include "bindings/c10d/work.h"

#include "bindings/c10d/interruption.h"
#include "bindings/core/host_exceptions.h"
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace kolo::c10d_binding {

namespace {

/// Number of futures of the process that were asked for and are not complete, and of threads that
/// may call abort hooks or make the host's exceptions.
std::atomic<int> user_code = 0;

void begin_user_code() { ++user_code; }
void end_user_code() {
  if (--user_code == 0) user_code.notify_all();
}

}  // namespace

void wait_for_user_code() {
  for (int left = user_code; left != 0; left = user_code) user_code.wait(left);
}

/// Shared with the thread, which outlives the FutureThread if a callback destroys the latter.
struct FutureThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::thread thread;
  std::deque<c10::intrusive_ptr<GroupWork>> done;
  const pid_t process = getpid();
  int begun = 0;  ///< futures that were asked for and are not complete
  bool closed = false;
  static thread_local const State* running;  ///< state whose callbacks run on this thread

  /// Returns false once the group is gone.
  static bool begin(const std::shared_ptr<State>& state) {
    const std::lock_guard lock(state->mutex);
    if (state->closed) return false;
    if (!state->thread.joinable()) state->thread = std::thread([state] { state->run(); });
    ++state->begun;
    begin_user_code();
    return true;
  }

  void push(c10::intrusive_ptr<GroupWork> work) {
    {
      const std::lock_guard lock(mutex);
      done.push_back(std::move(work));
    }
    changed.notify_all();
  }

  void run() {
    running = this;
    end_waits_for_this_thread();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !done.empty() || (closed && begun == 0); });
      if (done.empty()) return;
      auto work = std::move(done.front());
      done.pop_front();
      lock.unlock();
      work->complete_future();
      work.reset();  // without the lock: this may drop the last reference to the group
      end_user_code();
      lock.lock();
      --begun;
    }
  }
};

thread_local const FutureThread::State* FutureThread::State::running = nullptr;

FutureThread::FutureThread() : state_(std::make_shared<State>()) {}

FutureThread::~FutureThread() {
  if (state_->process != getpid()) {
    // A forked child has neither the thread nor an owner of the mutex.
    static_cast<void>(*new std::shared_ptr<State>(std::move(state_)));
    return;
  }
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    thread = std::move(state_->thread);
  }
  state_->changed.notify_all();
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

namespace {

std::uint64_t next_key() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

/// Calls the hooks on completion if all of these, which are done, have succeeded.
void tell_success(const GroupHooks& hooks, const Works& works, std::uint64_t key) {
  const auto succeeded = [](const auto& work) { return work->wait().ok(); };
  if (std::all_of(works.begin(), works.end(), succeeded)) hooks.completion.call(key);
}

}  // namespace

GroupWork::GroupWork(Started started, const Call& call, const FutureThread& futures,
                     std::shared_ptr<const GroupHooks> hooks)
    : c10d::Work(call.rank, call.type, at::hasCallbacks() ? started.title : nullptr,
                 at::hasCallbacks() ? std::optional(started.inputs.vec()) : std::nullopt),
      started_(std::move(started)),
      call_(call),
      key_(next_key()),
      futures_(futures.state_),
      hooks_(std::move(hooks)) {
  if (all_done()) {
    tell_success(*hooks_, started_.works, key_);
  } else if (!hooks_->completion.empty()) {
    when_done(
        [hooks = hooks_, works = started_.works, key = key_] { tell_success(*hooks, works, key); });
  }
  if (!recordFunctionEndCallback_) return;
  recording_ = std::make_shared<Recording>();
  recording_->end = std::move(recordFunctionEndCallback_);
  when_done([recording = recording_] { recording->stop(); });
}

bool GroupWork::all_done() const {
  return std::all_of(started_.works.begin(), started_.works.end(),
                     [](const auto& work) { return work->done(); });
}

bool GroupWork::has_ended() const {
  return std::any_of(started_.works.begin(), started_.works.end(), [](const auto& work) {
    const Status status = work->wait();
    return !status.ok() && status.error().code == ErrorCode::kShutdown;
  });
}

void GroupWork::when_done(const std::function<void()>& call) const {
  // One count for each operation and one for this loop. The last decrement is the end.
  const auto left = std::make_shared<std::atomic<std::size_t>>(started_.works.size() + 1);
  const auto tell = [call, left] {
    if (left->fetch_sub(1) == 1) call();
  };
  for (const auto& work : started_.works) work->on_done(tell);
  tell();
}

void GroupWork::take_outcome() const {
  for (const auto& work : started_.works) kolo::synchronize(*work);
  if (!started_.finish) return;
  for (const auto& work : started_.works) order_current_stream(*work, started_.device);
  // finish() may write all tensors here, even those made in inference mode.
  const c10::InferenceMode inference;
  started_.finish();
  if (started_.device.is_cpu()) return;
  copied_.emplace(started_.device.type());
  copied_->record(stream_of(started_.device));
}

void GroupWork::settle_once() const {
  // std::call_once makes a system call each time.
  const std::lock_guard lock(settle_mutex_);
  if (settled_.load(std::memory_order_relaxed)) return;
  try {
    throwing_for_host([this] { take_outcome(); });
  } catch (...) {
    failure_ = std::current_exception();
    if (!has_ended()) hooks_->abort.call();
  }
  settled_.store(true, std::memory_order_release);
}

void GroupWork::settle() const {
  if (settled_.load(std::memory_order_acquire)) return;
  // A hook may wait for a thread that needs the host's lock, as torch's flight recorder does.
  run_unlocked([this] {
    // Either the end waits for this thread, or this thread sees the end here.
    begin_user_code();
    if (!must_stay()) settle_once();
    end_user_code();
    stay_if_host_ends();
  });
}

void GroupWork::take_results() const {
  settle();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (started_.device.is_cpu()) return;
  for (const auto& work : started_.works) order_current_stream(*work, started_.device);
  if (copied_) copied_->block(stream_of(started_.device));
  for (const torch::Tensor& result : started_.results) keep_for_current_stream(result);
}

bool GroupWork::isCompleted() {
  if (!all_done()) return false;
  if (recording_ != nullptr) recording_->stop();
  // A caller may test and never wait, so the test copies results too. On a device, callers must use
  // synchronize() first.
  if (started_.device.is_cpu()) {
    settle();
    if (has_future_.load(std::memory_order_acquire)) run_unlocked([this] { complete_future(); });
  }
  return true;
}

bool GroupWork::isSuccess() const { return all_done() && exception() == nullptr; }

int GroupWork::sourceRank() const {
  const std::vector<int>& senders = started_.senders;
  if (senders.empty() || !all_done()) return started_.peer;
  const auto sender = std::find(senders.begin(), senders.end(),
                                static_cast<int>(started_.works.front()->outcome().value));
  return sender == senders.end() ? -1 : static_cast<int>(sender - senders.begin());
}

std::exception_ptr GroupWork::exception() const {
  if (!all_done()) return nullptr;
  settle();
  return failure_;
}

void GroupWork::raise_timeout(std::chrono::milliseconds timeout) const {
  raise(ErrorCode::kTimeout,
        "c10d call " + std::to_string(call_.sequence) + " (" + c10d::opTypeToString(call_.type) +
            ") of rank " + std::to_string(call_.rank) + " of the group is not done after " +
            std::to_string(timeout.count()) +
            " ms, the timeout it was given; it goes on until KOLO_OPERATION_TIMEOUT. Wait again, "
            "or longer, or abort() the group");
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  if (timeout <= kNoTimeout) timeout = call_.timeout;
  Clock::time_point until = Clock::time_point::max();
  if (timeout > kNoTimeout && !all_done()) {
    const Clock::time_point now = Clock::now();
    if (timeout < until - now) until = now + timeout;
  }
  for (const auto& work : started_.works) {
    if (work->done()) continue;
    const auto wait_until = [&](Clock::time_point moment) {
      (void)work->wait(moment);
      stay_if_host_ends();
      return work->done();
    };
    wait_interruptibly(wait_until, until);
    if (work->done()) continue;
    throwing_for_host([&] { raise_timeout(timeout); });
  }
  if (recording_ != nullptr) recording_->stop();
  complete_future();
  take_results();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() {
  const auto self = c10::intrusive_ptr<GroupWork>::unsafe_reclaim_from_nonowning(this);
  {
    const std::lock_guard lock(future_mutex_);
    if (future_ != nullptr) return future_;
    std::vector<c10::Device> devices;
    if (!started_.device.is_cpu()) devices.push_back(started_.device);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::move(devices));
    has_future_.store(true, std::memory_order_release);
  }
  const auto state = futures_.lock();
  // A callback must not wait for its own thread, so the future is completed here.
  if (state == nullptr || state.get() == FutureThread::State::running ||
      (started_.device.is_cpu() && all_done()) || !FutureThread::State::begin(state)) {
    run_unlocked([this] {
      for (const auto& work : started_.works) (void)work->wait();
      complete_future();
    });
    return future_;
  }
  when_done([self, state] { state->push(self); });
  return future_;
}

void GroupWork::complete_future() {
  if (!has_future_.load(std::memory_order_acquire)) return;  // future_ is set, and stays
  const c10::intrusive_ptr<c10::ivalue::Future> future = future_;
  // Another thread completes it, and runs no user code before the future is complete.
  if (is_completing_.exchange(true)) return future->wait();
  try {
    take_results();
    future->markCompleted(c10::IValue(started_.results));
  } catch (...) {
    future->setErrorIfNeeded(std::current_exception());
  }
}

}  // namespace kolo::c10d_binding
