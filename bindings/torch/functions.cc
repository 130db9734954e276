#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/device.h>
#include <kolo/torch/functions.h>

#include <utility>

namespace kolo {

torch::Device device() {
  static_cast<void>(local_rank());  // an error before init, as it will be with several devices
  return torch::Device(torch::kCPU);
}

TensorWork start_allreduce(torch::Tensor input, torch::Tensor output,
                           const TensorAllreduceOptions& options, bool absent) {
  const torch::NoGradGuard no_grad;
  const DataType type = data_type_of(output, options.name);
  check_alike(input, output, options.name);
  TensorWorkParts work{.work = {}, .result = output};
  torch::Tensor memory = output.detach();
  if (!memory.is_contiguous()) {
    work.staging = torch::empty(output.sizes(),
                                output.options().memory_format(torch::MemoryFormat::Contiguous));
    memory = work.staging;
  }
  // One copy serves where the input is not contiguous: into the memory of the result.
  torch::Tensor source = input.detach();
  if (!source.is_contiguous()) {
    memory.copy_(source);
    source = memory;
  }
  AllreduceOptions core;
  core.op = options.op;
  core.name = options.name;
  core.prescale = options.prescale;
  core.postscale = options.postscale;
  core.absent = absent;
  core.keep_alive = std::make_shared<const std::pair<torch::Tensor, torch::Tensor>>(source, memory);
  work.work = allreduce_async(source.data_ptr(), memory.data_ptr(), shape_of(output), type, core);
  return TensorWork(std::move(work));
}

TensorWork start_broadcast(torch::Tensor tensor, int root, const TensorBroadcastOptions& options) {
  const torch::NoGradGuard no_grad;
  const DataType type = data_type_of(tensor, options.name);
  TensorWorkParts work{.work = {}, .result = tensor};
  torch::Tensor memory = tensor.detach();
  if (!memory.is_contiguous()) {
    work.staging = memory.contiguous();
    memory = work.staging;
  }
  BroadcastOptions core;
  core.name = options.name;
  core.keep_alive = std::make_shared<const torch::Tensor>(memory);
  work.work = broadcast_async(memory.data_ptr(), shape_of(tensor), type, root, core);
  return TensorWork(std::move(work));
}

TensorWork allreduce_async(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  return start_allreduce(tensor, torch::empty_like(tensor.detach()), options, false);
}

TensorWork allreduce_async_(torch::Tensor tensor, const TensorAllreduceOptions& options) {
  return start_allreduce(tensor, tensor, options, false);
}

torch::Tensor allreduce(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  return allreduce_async(tensor, options).wait();
}

torch::Tensor allreduce_(torch::Tensor tensor, const TensorAllreduceOptions& options) {
  return allreduce_async_(std::move(tensor), options).wait();
}

TensorWork broadcast_async(const torch::Tensor& tensor, int root,
                           const TensorBroadcastOptions& options) {
  return start_broadcast(tensor.detach().clone(), root, options);
}

TensorWork broadcast_async_(torch::Tensor tensor, int root, const TensorBroadcastOptions& options) {
  return start_broadcast(std::move(tensor), root, options);
}

torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                        const TensorBroadcastOptions& options) {
  return broadcast_async(tensor, root, options).wait();
}

torch::Tensor broadcast_(torch::Tensor tensor, int root, const TensorBroadcastOptions& options) {
  return broadcast_async_(std::move(tensor), root, options).wait();
}

}  // namespace kolo
