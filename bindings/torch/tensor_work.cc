// Waiting for an operation on a tensor. Called by user threads.
#include <kolo/torch/tensor_work.h>

#include <utility>

namespace kolo {

TensorWork::TensorWork(TensorWorkParts parts)
    : work_(std::move(parts.work)),
      result_(std::move(parts.result)),
      staging_(std::move(parts.staging)),
      allocated_(std::move(parts.allocated)),
      format_(parts.format) {}

torch::Tensor TensorWork::wait() {
  synchronize(*work_);
  if (allocated_ != nullptr) {
    const torch::NoGradGuard no_grad;
    result_ = allocated_->contiguous(format_);
    allocated_.reset();
  }
  if (staging_.defined()) {
    const torch::NoGradGuard no_grad;
    result_.detach().copy_(staging_);
    staging_.reset();
  }
  return result_;
}

void TensorWork::drain() {
  if (work_ != nullptr) static_cast<void>(work_->wait());
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
