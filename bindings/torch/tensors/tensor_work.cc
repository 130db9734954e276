// Waits for an operation on a tensor. Called by user threads.
#include "bindings/torch/tensors/device_stream.h"

#include <kolo/torch/tensor_work.h>

#include <chrono>
#include <exception>
#include <utility>

namespace kolo {

TensorWork::TensorWork(TensorWorkParts parts)
    : work_(std::move(parts.work)),
      result_(std::move(parts.result)),
      staging_(std::move(parts.staging)),
      allocated_(std::move(parts.allocated)),
      format_(parts.format),
      device_(parts.device) {}

Work& TensorWork::work() const {
  if (work_ != nullptr) return *work_;
  raise(ErrorCode::kInvalidArgument,
        "TensorWork: it has no operation, because none was assigned or it was moved away; use what "
        "it was moved to");
}

torch::Tensor TensorWork::wait() {
  synchronize(work());
  order_current_stream(*work_, device_);
  if (allocated_ != nullptr) {
    const torch::NoGradGuard no_grad;
    keep_for_current_stream(*allocated_);
    result_ = allocated_->contiguous(format_);
    allocated_.reset();
  }
  if (staging_.defined()) {
    const torch::NoGradGuard no_grad;
    keep_for_current_stream(staging_);
    result_.detach().copy_(staging_);
    staging_.reset();
  }
  keep_for_current_stream(result_);
  return result_;
}

bool TensorWork::wait_until(std::chrono::steady_clock::time_point until) const {
  (void)work().wait(until);
  return done();
}

void TensorWork::drain() {
  if (work_ == nullptr || !work_->wait().ok()) return;
  try {
    order_current_stream(*work_, device_);
  } catch (const std::exception&) {
    // Destructors call this; a device that fails here runs nothing any more.
  }
}

torch::Tensor synchronize(TensorWork& work) { return work.wait(); }

std::vector<torch::Tensor> synchronize(std::vector<TensorWork> works) {
  for (TensorWork& work : works) work.drain();
  std::vector<torch::Tensor> results;
  for (TensorWork& work : works) results.push_back(work.wait());
  return results;
}

bool poll(const TensorWork& work) { return work.done(); }

}  // namespace kolo
