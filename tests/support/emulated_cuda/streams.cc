// A stream is a thread that does one thing after the other. An event is the point that a stream had
// reached when the event was recorded.
#include "tests/support/emulated_cuda/streams.h"

#include "tests/support/emulated_cuda/memory.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::emulated_cuda {

/// Reached once, then for ever.
class Point {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_reached_; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex_);
    return is_reached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
};

class Stream {
 public:
  explicit Stream(Gpu* gpu) : gpu_(gpu), thread_([this] { run(); }) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Gpu* gpu() const { return gpu_; }
  void give(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  std::shared_ptr<Point> mark() {
    auto point = std::make_shared<Point>();
    give([point] { point->reach(); });
    return point;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  Gpu* const gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool is_ending_ = false;                   // guarded by mutex_
  std::thread thread_;
};

namespace {

struct Event {
  explicit Event(Gpu* its) : gpu(its) {}
  Gpu* const gpu;
  std::mutex mutex;
  std::shared_ptr<Point> point;  // guarded by mutex; null: never recorded, which counts as done

  std::shared_ptr<Point> now() {
    const std::lock_guard lock(mutex);
    return point;
  }
};

struct Streams {
  std::mutex mutex;
  std::set<std::shared_ptr<Stream>> all;  // guarded by mutex, as all below
  std::vector<std::shared_ptr<Stream>> defaults;
  std::set<const Event*> events;  ///< a failed device destroys none: its events stay
  std::atomic<bool> are_capturing = false;
};

Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

/// The stream of a handle; null means the device's default stream.
std::shared_ptr<Stream> stream_of(cudaStream_t handle, Gpu* gpu) {
  const std::lock_guard lock(streams().mutex);
  if (handle == nullptr) {
    auto& defaults = streams().defaults;
    if (defaults.size() < gpus().size()) defaults.resize(gpus().size());
    auto& mine = defaults[static_cast<std::size_t>(gpu->ordinal)];
    if (mine == nullptr) mine = std::make_shared<Stream>(gpu);
    return mine;
  }
  for (const auto& each : streams().all)
    if (each.get() == reinterpret_cast<Stream*>(handle)) return each;
  return nullptr;
}

std::vector<std::shared_ptr<Stream>> every_stream() {
  const std::lock_guard lock(streams().mutex);
  std::vector<std::shared_ptr<Stream>> every(streams().all.begin(), streams().all.end());
  for (const auto& each : streams().defaults)
    if (each != nullptr) every.push_back(each);
  return every;
}

Event* event_of(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }

}  // namespace

cudaError_t give(cudaStream_t handle, Gpu* gpu, std::function<void()> work) {
  const auto stream = stream_of(handle, gpu);
  if (stream == nullptr || stream->gpu() != gpu) return told(cudaErrorInvalidResourceHandle);
  // A failed device does no more work.
  stream->give([gpu, work = std::move(work)] {
    if (gpu->failure == cudaSuccess) work();
  });
  return cudaSuccess;
}

void wait_for_streams() {
  for (const auto& each : every_stream()) each->mark()->wait();
}

void capture(bool is_capturing) { streams().are_capturing = is_capturing; }

Alive alive() {
  Alive alive;
  count_memory(alive);
  const std::lock_guard lock(streams().mutex);
  alive.streams = streams().all.size();
  alive.events = streams().events.size();
  return alive;
}

}  // namespace kolo::test::emulated_cuda

using namespace kolo::test::emulated_cuda;  // NOLINT(google-build-using-namespace)

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  EMULATED_CUDA_ENTER(gpu);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  EMULATED_CUDA_ENTER(gpu);
  const auto made = std::make_shared<Stream>(gpu);
  const std::lock_guard lock(streams().mutex);
  streams().all.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  EMULATED_CUDA_ENTER(gpu);
  auto stream = stream_of(handle, gpu);
  if (handle == nullptr || stream == nullptr) return told(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard lock(streams().mutex);
    streams().all.erase(stream);
  }
  stream.reset();  // after its work
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  const auto stream = stream_of(handle, gpu);
  if (stream == nullptr) return told(cudaErrorInvalidResourceHandle);
  stream->mark()->wait();
  return told(gpu->failure);
}

cudaError_t cudaDeviceSynchronize() {
  EMULATED_CUDA_ENTER(gpu);
  if (captures_elsewhere()) return told(cudaErrorStreamCaptureUnsupported);
  wait_for_streams();
  return told(gpu->failure);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  EMULATED_CUDA_ENTER(gpu);
  if (stream_of(handle, gpu) == nullptr) return told(cudaErrorInvalidResourceHandle);
  if (streams().are_capturing && handle == nullptr) return told(cudaErrorStreamCaptureImplicit);
  *status = streams().are_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  EMULATED_CUDA_ENTER(gpu);
  // The event's present point; it may be recorded anew before the stream comes here.
  const std::shared_ptr<Point> point = event_of(event)->now();
  const auto stream = stream_of(handle, gpu);
  if (stream == nullptr) return told(cudaErrorInvalidResourceHandle);
  if (streams().are_capturing) {
    return told(handle == nullptr ? cudaErrorStreamCaptureImplicit
                                  : cudaErrorStreamCaptureIsolation);
  }
  if (point != nullptr) stream->give([point] { point->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  EMULATED_CUDA_ENTER(gpu);
  auto* const made = new Event(gpu);
  *event = reinterpret_cast<cudaEvent_t>(made);
  const std::lock_guard lock(streams().mutex);
  streams().events.insert(made);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  EMULATED_CUDA_ENTER(gpu);
  {
    const std::lock_guard lock(streams().mutex);
    streams().events.erase(event_of(event));
  }
  delete event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  EMULATED_CUDA_ENTER(gpu);
  const auto stream = stream_of(handle, gpu);
  if (stream == nullptr || stream->gpu() != gpu || event_of(event)->gpu != gpu)
    return told(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(event_of(event)->mutex);
  event_of(event)->point = stream->mark();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  const auto point = event_of(event)->now();
  return point == nullptr || point->is_reached() ? cudaSuccess : told(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  if (const auto point = event_of(event)->now()) point->wait();
  return told(gpu->failure);
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  EMULATED_CUDA_ENTER(gpu);
  if (!is_within(source, bytes) || !is_within(destination, bytes))
    return told(cudaErrorInvalidValue);
  const cudaError_t given = give(stream, gpu, [=] { std::memcpy(destination, source, bytes); });
  // A copy to memory that is not pinned returns when it is done; a copy from there may.
  if (given == cudaSuccess && is_pageable(destination)) stream_of(stream, gpu)->mark()->wait();
  return given;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  EMULATED_CUDA_ENTER(gpu);
  if (!is_reached(gpu, memory, bytes)) return told(cudaErrorInvalidValue);
  return give(stream, gpu, [=] { std::memset(memory, value, bytes); });
}
