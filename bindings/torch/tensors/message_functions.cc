// Messages on tensors, and the sparse allreduce. User threads.
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <exception>
#include <memory>
#include <utility>

namespace kolo {
namespace {

MessageOptions core_options(const TensorMessageOptions& options, const torch::Tensor& memory) {
  return {.tag = options.tag,
          .keep_alive = std::make_shared<const torch::Tensor>(memory),
          .process_set = options.process_set,
          .stream = current_stream(memory.device())};
}

/// The memory of a message, as the core takes it.
struct MessageMemory {
  DataType type;
  torch::Tensor memory;
};

/// Tells the peer of a message that this rank refuses.
auto tell_peer(OperationKind kind, int peer, const TensorMessageOptions& options) {
  return [kind, peer, &options](const std::exception& error) {
    refuse_message(kind, peer, options.tag, reason_of(error), options.process_set);
  };
}

/// Integers stay integers if there is nothing to scale.
torch::Tensor scaled(const torch::Tensor& tensor, double factor) {
  return factor == 1.0 ? tensor : tensor * factor;
}

std::string part(const std::string& name, const char* what) {
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

}  // namespace

TensorWork send_async(const torch::Tensor& tensor, int to, const TensorMessageOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto [type, memory] = checked(
      [&]() -> MessageMemory {
        return {data_type_of(tensor, {}), plain(tensor.detach())};
      },
      tell_peer(OperationKind::kSend, to, options));
  return TensorWork({.work = send_async(memory.data_ptr(), memory.numel(), type, to,
                                        core_options(options, memory)),
                     .result = tensor,
                     .device = memory.device()});
}

void send(const torch::Tensor& tensor, int to, const TensorMessageOptions& options) {
  send_async(tensor, to, options).wait();
}

TensorWork recv_async_(torch::Tensor tensor, int from, const TensorMessageOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto [type, memory] = checked(
      [&]() -> MessageMemory {
        const DataType element = data_type_of(tensor, {});
        check_written(tensor);
        const torch::Tensor own = tensor.detach();
        return {element, is_plain(own) ? own : plain(own)};
      },
      tell_peer(OperationKind::kReceive, from, options));
  TensorWorkParts parts{.work = {}, .result = tensor, .device = tensor.device()};
  if (!memory.is_alias_of(tensor)) parts.staging = memory;
  parts.work =
      recv_async(memory.data_ptr(), memory.numel(), type, from, core_options(options, memory));
  return TensorWork(std::move(parts));
}

torch::Tensor recv_(torch::Tensor tensor, int from, const TensorMessageOptions& options) {
  return recv_async_(std::move(tensor), from, options).wait();
}

torch::Tensor sparse_allreduce(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  const torch::NoGradGuard no_grad;
  const std::string& name = options.name;
  const ProcessSet& set = options.process_set;
  torch::Tensor mine;
  FirstFailure failure;
  failure.attempt([&] { mine = coalesced(tensor, options); });
  // A failure here is announced for each of the three gathers that the other ranks start.
  const auto gather = [&](const char* what, const auto& rows) {
    const TensorAllgatherOptions part_options{part(name, what), set};
    const TensorCall call = call_of("sparse_allreduce", OperationKind::kAllgather, part_options);
    return start_or_refuse(call, torch::Tensor(), [&] {
      failure.rethrow();
      return allgather_async(rows(), part_options);
    });
  };
  TensorWork shapes = gather(
      "shape", [&] { return torch::tensor(mine.sizes().vec(), torch::kInt64).unsqueeze(0); });
  TensorWork indices = gather("indices", [&] { return mine.indices().t(); });
  TensorWork values = gather("values", [&] { return scaled(mine.values(), options.prescale); });
  for (TensorWork* work : {&shapes, &indices, &values}) work->drain();
  const torch::Tensor all_shapes = shapes.wait();
  const std::vector<int> ranks = set.ranks();
  for (std::int64_t i = 1; i < all_shapes.size(0); ++i) {
    if (all_shapes[0].equal(all_shapes[i])) continue;
    const auto text = [&](std::int64_t row) {
      const auto* const extents = all_shapes[row].const_data_ptr<std::int64_t>();
      return to_string(Shape(extents, extents + all_shapes.size(1)));
    };
    raise(ErrorCode::kMismatch,
          "sparse tensor '" + name + "': rank " + std::to_string(ranks.front()) + " has shape " +
              text(0) + ", but rank " + std::to_string(ranks[static_cast<std::size_t>(i)]) +
              " has shape " + text(i) + "; every rank must pass the same shape");
  }
  const double divisor = options.op == ReduceOp::kAverage ? static_cast<double>(ranks.size()) : 1.0;
  torch::Tensor sum =
      torch::sparse_coo_tensor(indices.wait().t(), values.wait(), mine.sizes()).coalesce();
  return scaled(sum, options.postscale / divisor).coalesce();
}

}  // namespace kolo
