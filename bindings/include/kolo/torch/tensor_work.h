// TensorWork: the handle on an operation on a tensor. Used by one thread at a time.
//
// On CUDA tensors, wait() lets the current stream of the waiting thread go on after the operation,
// and the result is that stream's to use: the host does not wait for the device. done() tells that
// the operation is handed in to the device, or has failed.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace kolo {

struct TensorWorkParts;

/// An operation on a tensor under way; keeps the memory alive.
class KOLO_API TensorWork {
 public:
  TensorWork() = default;
  /// Called by kolo's own functions.
  explicit TensorWork(TensorWorkParts parts);

  bool valid() const { return work_ != nullptr; }
  /// Whether it has ended. Never blocks. Precondition: valid().
  bool done() const { return work_->done(); }
  /// Waits; the result. Throws what the operation failed with. May be called again.
  torch::Tensor wait();
  /// Waits until nobody touches the memory any more, whatever the outcome; on CUDA tensors, what
  /// the current stream is given from now on comes after that.
  void drain();
  /// As Work::contributors(). Precondition: done.
  int contributors() const { return work_->contributors(); }
  /// As Work::participants(). Precondition: done.
  int participants() const { return work_->participants(); }
  /// As Work::received_splits(). Precondition: done.
  const std::vector<std::int64_t>& received_splits() const { return work_->received_splits(); }

 private:
  std::shared_ptr<Work> work_;
  torch::Tensor result_;                      ///< what the caller gets
  torch::Tensor staging_;                     ///< contiguous memory of a result that is not
  std::shared_ptr<torch::Tensor> allocated_;  ///< the result, where the agreement told its shape
  torch::MemoryFormat format_ = torch::MemoryFormat::Contiguous;  ///< which that result gets
  torch::Device device_ = torch::kCPU;                            ///< of the operation's memory
};

/// What a TensorWork is made of.
struct TensorWorkParts {
  std::shared_ptr<Work> work;
  torch::Tensor result;
  torch::Tensor staging = {};
  std::shared_ptr<torch::Tensor> allocated = {};
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;  ///< of what is allocated
  torch::Device device = torch::kCPU;                            ///< of the operation's memory
};

/// Waits; the result, or what the operation failed with.
KOLO_API torch::Tensor synchronize(TensorWork& work);
inline torch::Tensor synchronize(TensorWork&& work) { return synchronize(work); }
/// The results, once all have ended; throws what the first that has failed did.
KOLO_API std::vector<torch::Tensor> synchronize(std::vector<TensorWork> works);
/// Whether the operation has ended; never blocks.
KOLO_API bool poll(const TensorWork& work);

}  // namespace kolo
