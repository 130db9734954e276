// Messages on tensors. User threads.
#include "bindings/torch/tensors/device_stream.h"
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

}  // namespace

TensorWork send_async(const torch::Tensor& tensor, int to, const TensorMessageOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto [type, memory] = checked(
      [&]() -> MessageMemory {
        return {moved_type_of(tensor, {}), plain(tensor.detach())};
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
        const DataType element = moved_type_of(tensor, {});
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

}  // namespace kolo
