#include "runtime/device/cuda/cuda_event.h"

#include "runtime/base/check.h"
#include "runtime/device/cuda/cuda_error.h"

namespace kolo::cuda {
namespace {

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(std::shared_ptr<EventPool> pool, cudaEvent_t event)
      : pool_(std::move(pool)), event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  // A stream that waits for the event has already noted its state, so the event may be recorded
  // again.
  ~CudaEvent() override { pool_->give_back(event_); }

  Status record(cudaStream_t stream) {
    const CudaScope scope(pool_->context());
    KOLO_CUDA_TRY(pool_->context(), cudaEventRecord(event_, stream));
    return {};
  }

  Result<bool> is_done() const override {
    const CudaScope scope(pool_->context());
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    KOLO_CUDA_TRY(pool_->context(), error);
    return true;
  }

  Status synchronize() const override {
    const CudaScope scope(pool_->context());
    KOLO_CUDA_TRY(pool_->context(), cudaEventSynchronize(event_));
    return {};
  }

  Status order(void* native_stream) const override {
    auto* const stream = static_cast<cudaStream_t>(native_stream);
    KOLO_TRY(check_capture(pool_->context(), stream));
    const CudaScope scope(pool_->context());
    KOLO_CUDA_TRY(pool_->context(), cudaStreamWaitEvent(stream, event_, 0));
    return {};
  }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_;
};

}  // namespace

Status check_capture(const CudaContext& context, cudaStream_t stream) {
  const CudaScope scope(context);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  // The default stream reports this while another stream, which waits for it, captures a graph.
  const bool is_implicit = error == cudaErrorStreamCaptureImplicit;
  // Any other error of the stream shows in the call that uses the stream next.
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (status == cudaStreamCaptureStatusNone && !is_implicit) return {};
  return KOLO_ERROR(kUnsupported,
                    "its CUDA stream on {} captures a graph, which what other ranks do cannot be a "
                    "part of; call kolo before the capture or after it",
                    context.name());
}

EventPool::~EventPool() {
  const CudaScope scope(*context_);
  for (cudaEvent_t event : free_) static_cast<void>(cudaEventDestroy(event));
  static_cast<void>(cudaGetLastError());
}

Result<cudaEvent_t> EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  const CudaScope scope(*context_);
  cudaEvent_t event = nullptr;
  KOLO_CUDA_TRY(*context_, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void EventPool::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

Result<std::shared_ptr<DeviceEvent>> record_event(std::shared_ptr<EventPool> pool,
                                                  cudaStream_t stream) {
  KOLO_ASSIGN(const cudaEvent_t native, pool->take());
  auto event = std::make_shared<CudaEvent>(std::move(pool), native);
  KOLO_TRY(event->record(stream));
  return std::shared_ptr<DeviceEvent>(std::move(event));
}

}  // namespace kolo::cuda
