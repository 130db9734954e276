// The sparse allreduce: one allgather, of every rank's indices and values. User threads.
#include "bindings/torch/tensors/sparse_parts.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <kolo/torch/functions.h>

#include <string>
#include <utility>

namespace kolo {
namespace {

std::string called(const TensorAllreduceOptions& options) {
  return options.name.empty() ? "sparse_allreduce" : "sparse_allreduce '" + options.name + "'";
}

void check(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  if (!tensor.defined() || tensor.layout() != torch::kSparse) {
    raise(ErrorCode::kInvalidArgument,
          called(options) + " takes a sparse COO tensor; use allreduce");
  }
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kAverage) {
    raise(ErrorCode::kUnsupported,
          called(options) + " does sum and average, not " + std::string(to_string(options.op)));
  }
  data_type_of(tensor._values(), options.name);
}

}  // namespace

SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                  const TensorAllreduceOptions& options) {
  const TensorAllgatherOptions gather{options.name, options.process_set};
  const TensorCall call = call_of("sparse_allreduce", OperationKind::kAllgather, gather);
  SparseWork work;
  work.options_ = options;
  work.parts_ = start_or_refuse(call, torch::Tensor(), [&] {
    check(tensor, options);
    return allgather_async(
        sparse_part_of(tensor, tensor.device(), options.process_set, options.prescale), gather);
  });
  return work;
}

bool SparseWork::wait_until(std::chrono::steady_clock::time_point until) const {
  return parts_.wait_until(until);
}

torch::Tensor SparseWork::wait() {
  if (!result_.defined()) {
    const torch::NoGradGuard no_grad;
    torch::Tensor sum = sum_of_sparse_parts(parts_.wait(), called(options_), options_.process_set);
    const double factor =
        options_.op == ReduceOp::kAverage
            ? options_.postscale / static_cast<double>(options_.process_set.size())
            : options_.postscale;
    // Integers stay integers if there is nothing to scale.
    result_ = factor == 1.0 ? std::move(sum) : (sum * factor).coalesce();
  }
  return result_;
}

torch::Tensor sparse_allreduce(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  return sparse_allreduce_async(tensor, options).wait();
}

}  // namespace kolo
