// The sparse allreduce: three allgathers, of the shapes, the indices and the values. User threads.
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <kolo/torch/functions.h>

#include <string>

namespace kolo {
namespace {

/// Integers stay integers if there is nothing to scale.
torch::Tensor scaled(const torch::Tensor& tensor, double factor) {
  return factor == 1.0 ? tensor : tensor * factor;
}

std::string part_of(const std::string& name, const char* what) {
  return name.empty() ? name : name + "/" + what;
}

torch::Tensor coalesced(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  const std::string call =
      options.name.empty() ? "sparse_allreduce" : "sparse_allreduce '" + options.name + "'";
  if (!tensor.defined() || tensor.layout() != torch::kSparse)
    raise(ErrorCode::kInvalidArgument, call + " takes a sparse COO tensor; use allreduce");
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kAverage) {
    raise(ErrorCode::kUnsupported,
          call + " does sum and average, not " + std::string(to_string(options.op)));
  }
  return tensor.detach().coalesce();
}

void check_equal_shapes(const torch::Tensor& shapes, const TensorAllreduceOptions& options) {
  const std::vector<int> ranks = options.process_set.ranks();
  for (std::int64_t i = 1; i < shapes.size(0); ++i) {
    if (shapes[0].equal(shapes[i])) continue;
    const auto text = [&](std::int64_t row) {
      const auto* const extents = shapes[row].const_data_ptr<std::int64_t>();
      return to_string(Shape(extents, extents + shapes.size(1)));
    };
    raise(ErrorCode::kMismatch,
          "sparse tensor '" + options.name + "': rank " + std::to_string(ranks.front()) +
              " has shape " + text(0) + ", but rank " +
              std::to_string(ranks[static_cast<std::size_t>(i)]) + " has shape " + text(i) +
              "; every rank must pass the same shape");
  }
}

}  // namespace

SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                  const TensorAllreduceOptions& options) {
  const torch::NoGradGuard no_grad;
  torch::Tensor mine;
  FirstFailure failure;
  failure.attempt([&] { mine = coalesced(tensor, options); });
  // A failure here is announced for each of the three gathers that the other ranks start.
  const auto gather = [&](const char* what, const auto& rows) {
    const TensorAllgatherOptions part{part_of(options.name, what), options.process_set};
    const TensorCall call = call_of("sparse_allreduce", OperationKind::kAllgather, part);
    return start_or_refuse(call, torch::Tensor(), [&] {
      failure.rethrow();
      return allgather_async(rows(), part);
    });
  };
  SparseWork work;
  work.options_ = options;
  work.shapes_ = gather(
      "shape", [&] { return torch::tensor(mine.sizes().vec(), torch::kInt64).unsqueeze(0); });
  work.indices_ = gather("indices", [&] { return mine.indices().t(); });
  work.values_ = gather("values", [&] { return scaled(mine.values(), options.prescale); });
  return work;
}

bool SparseWork::wait_until(std::chrono::steady_clock::time_point until) const {
  for (const TensorWork* work : {&shapes_, &indices_, &values_}) work->wait_until(until);
  return done();
}

torch::Tensor SparseWork::wait() {
  if (result_.defined()) return result_;
  const torch::NoGradGuard no_grad;
  for (TensorWork* work : {&shapes_, &indices_, &values_}) work->drain();
  const torch::Tensor shapes = shapes_.wait();
  check_equal_shapes(shapes, options_);
  const auto* const extents = shapes.const_data_ptr<std::int64_t>();
  const torch::Tensor sum = torch::sparse_coo_tensor(indices_.wait().t(), values_.wait(),
                                                     torch::IntArrayRef(extents, shapes.size(1)))
                                .coalesce();
  const double divisor =
      options_.op == ReduceOp::kAverage ? static_cast<double>(options_.process_set.size()) : 1.0;
  result_ = scaled(sum, options_.postscale / divisor).coalesce();
  return result_;
}

torch::Tensor sparse_allreduce(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  return sparse_allreduce_async(tensor, options).wait();
}

}  // namespace kolo
