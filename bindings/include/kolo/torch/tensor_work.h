// TensorWork: the handle on an operation on a tensor.
//
//   kolo::TensorWork work = kolo::allreduce_async(tensor, {.name = "tensor"});
//   // … compute …
//   torch::Tensor sum = work.wait();
//
// - Used by one thread at a time.
// - On CUDA tensors, wait() makes the waiting thread's current stream wait for the operation. The
//   result is then usable on that stream. The host does not wait for the device.
// - On CUDA tensors, done() is true when the operation is enqueued on the device or has failed.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace kolo {

struct TensorWorkParts;

/// An operation in flight on a tensor. It keeps the memory alive. All but valid() and drain() throw
/// kInvalidArgument if there is no operation: none was assigned, or it was moved away.
class KOLO_API TensorWork {
 public:
  TensorWork() = default;
  /// Called by kolo's own functions.
  explicit TensorWork(TensorWorkParts parts);

  bool valid() const { return work_ != nullptr; }
  /// Whether the operation has ended. Never blocks.
  bool done() const { return work().done(); }
  /// Waits and returns the result. Throws the operation's failure. May be called again.
  torch::Tensor wait();
  /// Waits until the operation has ended or `until` has passed. Returns done().
  bool wait_until(std::chrono::steady_clock::time_point until) const;
  /// Waits until nothing accesses the memory any more, whatever the outcome. On CUDA tensors, later
  /// work of the current stream runs after that. Does nothing without an operation.
  void drain();
  /// As Work::contributors(). Precondition: done.
  int contributors() const { return work().contributors(); }
  /// As Work::participants(). Precondition: done.
  int participants() const { return work().participants(); }
  /// As Work::received_splits(). Precondition: done.
  const std::vector<std::int64_t>& received_splits() const { return work().received_splits(); }

 private:
  Work& work() const;

  std::shared_ptr<Work> work_;
  torch::Tensor result_;   ///< what wait() returns
  torch::Tensor staging_;  ///< contiguous memory for a result that is not contiguous
  std::shared_ptr<torch::Tensor> allocated_;  ///< the result, where the ranks agreed on its shape
  torch::MemoryFormat format_ = torch::MemoryFormat::Contiguous;  ///< format of `allocated_`
  torch::Device device_ = torch::kCPU;  ///< device of the operation's memory
};

/// What a TensorWork is made of.
struct TensorWorkParts {
  std::shared_ptr<Work> work;
  torch::Tensor result;
  torch::Tensor staging = {};
  std::shared_ptr<torch::Tensor> allocated = {};
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;  ///< memory format of `allocated`
  torch::Device device = torch::kCPU;  ///< device of the operation's memory
};

/// Waits and returns the result, or throws the operation's failure.
KOLO_API torch::Tensor synchronize(TensorWork& work);
inline torch::Tensor synchronize(TensorWork&& work) { return synchronize(work); }
/// Returns the results once all have ended. Throws the failure of the first work that failed.
KOLO_API std::vector<torch::Tensor> synchronize(std::vector<TensorWork> works);
/// Whether the operation has ended; never blocks.
KOLO_API bool poll(const TensorWork& work);

}  // namespace kolo
