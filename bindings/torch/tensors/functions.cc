#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <kolo/torch/functions.h>

#include <utility>

namespace kolo {

namespace {

/// Contiguous memory for an allreduce of tensors of any strides.
struct DenseMemory {
  TensorWorkParts parts;
  torch::Tensor source;
  torch::Tensor memory;
  DataType type;

  DenseMemory(const torch::Tensor& input, const torch::Tensor& output)
      : parts{.work = {}, .result = output}, type(data_type_of(output, {})) {
    check_alike(input, output, {});
    check_written(output);
    parts.device = output.device();
    memory = output.detach();
    if (!is_plain(memory)) {
      parts.staging = torch::empty(output.sizes(),
                                   output.options().memory_format(torch::MemoryFormat::Contiguous));
      memory = parts.staging;
    }
    // If the input is not contiguous, copy it once, into the memory of the result.
    source = input.detach();
    if (!is_plain(source)) {
      memory.copy_(source);
      source = memory;
    }
  }
};

AllreduceOptions core_options(const TensorAllreduceOptions& options, torch::Device device) {
  AllreduceOptions core;
  core.op = options.op;
  core.name = options.name;
  core.prescale = options.prescale;
  core.postscale = options.postscale;
  core.process_set = options.process_set;
  core.stream = current_stream(device);
  return core;
}

TensorCall allreduce_of(const TensorAllreduceOptions& options) {
  return reduction_of("allreduce", OperationKind::kAllreduce, options);
}
TensorCall broadcast_of(int root, const TensorBroadcastOptions& options) {
  return call_of("broadcast", OperationKind::kBroadcast, options, root);
}

TensorWork start_checked(const torch::Tensor& input, const torch::Tensor& output,
                         const TensorAllreduceOptions& options, bool absent) {
  const torch::NoGradGuard no_grad;
  DenseMemory dense(input, output);
  AllreduceOptions core = core_options(options, dense.parts.device);
  core.absent = absent;
  core.keep_alive =
      std::make_shared<const std::pair<torch::Tensor, torch::Tensor>>(dense.source, dense.memory);
  dense.parts.work = allreduce_async(dense.source.data_ptr(), dense.memory.data_ptr(),
                                     shape_of(output), dense.type, core);
  return TensorWork(std::move(dense.parts));
}

std::vector<TensorWork> start_checked(const std::vector<TensorGroupMember>& members,
                                      const TensorAllreduceOptions& options) {
  const torch::NoGradGuard no_grad;
  std::vector<DenseMemory> memory;
  std::vector<GroupMember> group;
  auto owners = std::make_shared<std::vector<torch::Tensor>>();
  for (const TensorGroupMember& member : members) {
    const DenseMemory& dense = memory.emplace_back(member.input, member.output);
    check_one_device(memory.front().memory, dense.memory, member.name);
    group.push_back({dense.source.data_ptr(), dense.memory.data_ptr(), shape_of(member.output),
                     dense.type, member.name, member.absent});
    owners->insert(owners->end(), {dense.source, dense.memory});
  }
  AllreduceOptions core =
      core_options(options, memory.empty() ? torch::kCPU : memory.front().parts.device);
  core.keep_alive = std::move(owners);
  std::vector<TensorWork> works;
  auto started = grouped_allreduce_async(group, core);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i].parts.work = std::move(started[i]);
    works.emplace_back(std::move(memory[i].parts));
  }
  return works;
}

TensorWork start_checked(const torch::Tensor& tensor, int root,
                         const TensorBroadcastOptions& options) {
  const torch::NoGradGuard no_grad;
  const DataType type = moved_type_of(tensor, {});
  check_written(tensor);
  TensorWorkParts work{.work = {}, .result = tensor, .device = tensor.device()};
  torch::Tensor memory = tensor.detach();
  if (!is_plain(memory)) {
    work.staging = plain(memory);
    memory = work.staging;
  }
  BroadcastOptions core;
  core.name = options.name;
  core.keep_alive = std::make_shared<const torch::Tensor>(memory);
  core.process_set = options.process_set;
  core.stream = current_stream(work.device);
  work.work = broadcast_async(memory.data_ptr(), shape_of(tensor), type, root, core);
  return TensorWork(std::move(work));
}

torch::Tensor detached_copy(const torch::Tensor& tensor) {
  static_cast<void>(moved_type_of(tensor, {}));
  return tensor.detach().clone();
}

torch::Tensor empty_as(const torch::Tensor& tensor) {
  static_cast<void>(data_type_of(tensor, {}));  // checked before memory is taken on its device
  return torch::empty_like(tensor.detach());
}

}  // namespace

TensorWork start_allreduce(torch::Tensor input, torch::Tensor output,
                           const TensorAllreduceOptions& options, bool absent) {
  return start_or_refuse(allreduce_of(options), output.defined() ? output : input,
                         [&] { return start_checked(input, output, options, absent); });
}

std::vector<TensorWork> start_grouped_allreduce(std::vector<TensorGroupMember> members,
                                                const TensorAllreduceOptions& options) {
  try {
    return start_checked(members, options);
  } catch (const std::exception&) {
    std::vector<torch::Tensor> tensors;
    std::vector<std::string> names;
    for (const TensorGroupMember& member : members) {
      tensors.push_back(member.output.defined() ? member.output : member.input);
      names.push_back(member.name);
    }
    return refuse_caught(allreduce_of(options), tensors, names);
  }
}

std::vector<TensorWork> grouped_allreduce_async(const std::vector<torch::Tensor>& tensors,
                                                const TensorAllreduceOptions& options) {
  return start_or_refuse(allreduce_of(options), tensors, [&] {
    std::vector<TensorGroupMember> members;
    for (const torch::Tensor& tensor : tensors) members.push_back({tensor, empty_as(tensor), {}});
    return start_checked(members, options);
  });
}

std::vector<TensorWork> grouped_allreduce_async_(std::vector<torch::Tensor> tensors,
                                                 const TensorAllreduceOptions& options) {
  std::vector<TensorGroupMember> members;
  for (const torch::Tensor& tensor : tensors) members.push_back({tensor, tensor, {}});
  return start_grouped_allreduce(std::move(members), options);
}

std::vector<torch::Tensor> grouped_allreduce(const std::vector<torch::Tensor>& tensors,
                                             const TensorAllreduceOptions& options) {
  return synchronize(grouped_allreduce_async(tensors, options));
}

std::vector<torch::Tensor> grouped_allreduce_(std::vector<torch::Tensor> tensors,
                                              const TensorAllreduceOptions& options) {
  return synchronize(grouped_allreduce_async_(std::move(tensors), options));
}

TensorWork start_broadcast(torch::Tensor tensor, int root, const TensorBroadcastOptions& options) {
  return start_or_refuse(broadcast_of(root, options), tensor,
                         [&] { return start_checked(tensor, root, options); });
}

TensorWork allreduce_async(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  warn_of_lost_gradient(tensor, "allreduce");
  return start_or_refuse(allreduce_of(options), tensor,
                         [&] { return start_checked(tensor, empty_as(tensor), options, false); });
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
  warn_of_lost_gradient(tensor, "broadcast");
  return start_or_refuse(broadcast_of(root, options), tensor,
                         [&] { return start_checked(detached_copy(tensor), root, options); });
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
