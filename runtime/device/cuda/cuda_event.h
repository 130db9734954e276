// CUDA events, and the pool that reuses them: creating an event takes the driver's lock, which the
// kernels of a training loop hold often. Any thread.
#pragma once

#include "runtime/device/cuda/cuda_context.h"

#include <memory>
#include <mutex>
#include <vector>

namespace kolo::cuda {

class EventPool {
 public:
  explicit EventPool(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  const CudaContext& context() const { return *context_; }
  Result<cudaEvent_t> take();
  void give_back(cudaEvent_t event);

 private:
  std::shared_ptr<const CudaContext> context_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

/// kUnsupported if the stream captures a graph, or if it is the default stream and a capturing
/// stream waits for it: recording or waiting there would end the capture.
Status check_capture(const CudaContext& context, cudaStream_t stream);

/// An event after everything enqueued so far on `stream`.
Result<std::shared_ptr<DeviceEvent>> record_event(std::shared_ptr<EventPool> pool,
                                                  cudaStream_t stream);

}  // namespace kolo::cuda
