// Collectives that count in rows. The input is contiguous, and the output is allocated once the
// ranks have agreed on its shape. User threads; the thread that drives progress allocates.
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <kolo/torch/row_functions.h>

#include <memory>
#include <utility>

namespace kolo {
namespace {

template <class Options>
CollectiveOptions collective(const Options& options, std::shared_ptr<const void> keep_alive,
                             torch::Device device) {
  return {.name = options.name,
          .keep_alive = std::move(keep_alive),
          .process_set = options.process_set,
          .stream = current_stream(device)};
}

ReducescatterOptions reduction(const TensorReducescatterOptions& options, CollectiveOptions core) {
  return {.op = options.op,
          .name = std::move(core.name),
          .prescale = options.prescale,
          .postscale = options.postscale,
          .keep_alive = std::move(core.keep_alive),
          .process_set = core.process_set,
          .stream = core.stream};
}

/// The input as the core takes it, and the output to be allocated.
struct RowMemory {
  torch::Tensor input;
  DataType type;
  Shape shape;
  torch::MemoryFormat format;  ///< memory format of the result: that of the caller's tensor
  std::shared_ptr<torch::Tensor> output = std::make_shared<torch::Tensor>();

  explicit RowMemory(const torch::Tensor& tensor)
      : type(moved_type_of(tensor, {})),
        shape(shape_of(tensor)),
        format(tensor.suggest_memory_format()) {
    const torch::NoGradGuard no_grad;
    input = plain(tensor.detach());
  }

  Allocator allocator() const { return allocator_of(output, input.options()); }

  template <class Options>
  CollectiveOptions core_options(const Options& options) const {
    return collective(options, keep_alive(), input.device());
  }
  ReducescatterOptions core_reduction(const TensorReducescatterOptions& options) const {
    static_cast<void>(data_type_of(input, {}));
    return reduction(options, core_options(options));
  }

  std::shared_ptr<const void> keep_alive() const {
    return std::make_shared<const std::pair<torch::Tensor, std::shared_ptr<torch::Tensor>>>(input,
                                                                                            output);
  }

  TensorWork work(std::shared_ptr<Work> work) const {
    return TensorWork({.work = std::move(work),
                       .result = {},
                       .allocated = output,
                       .format = format,
                       .device = input.device()});
  }
};

/// The tensors of a group as the core takes them.
struct RowGroup {
  std::vector<RowMemory> memory;

  explicit RowGroup(const std::vector<torch::Tensor>& tensors) {
    for (const torch::Tensor& tensor : tensors) {
      memory.emplace_back(tensor);
      check_one_device(memory.back().input, memory.front().input, {});
    }
  }

  std::vector<RowMember> members() const {
    std::vector<RowMember> members;
    for (const RowMemory& m : memory)
      members.push_back({m.input.data_ptr(), m.shape, m.type, m.allocator()});
    return members;
  }

  template <class Options>
  CollectiveOptions core_options(const Options& options) const {
    return collective(options, std::make_shared<const std::vector<RowMemory>>(memory),
                      memory.empty() ? torch::kCPU : memory.front().input.device());
  }
  ReducescatterOptions core_reduction(const TensorReducescatterOptions& options) const {
    for (const RowMemory& m : memory) static_cast<void>(data_type_of(m.input, {}));
    return reduction(options, core_options(options));
  }

  std::vector<TensorWork> works(std::vector<std::shared_ptr<Work>> started) const {
    std::vector<TensorWork> works;
    for (std::size_t i = 0; i < memory.size(); ++i)
      works.push_back(memory[i].work(std::move(started[i])));
    return works;
  }
};

}  // namespace

TensorWork allgather_async(const torch::Tensor& tensor, const TensorAllgatherOptions& options) {
  warn_of_lost_gradient(tensor, "allgather");
  return start_or_refuse(call_of("allgather", OperationKind::kAllgather, options), tensor, [&] {
    const RowMemory memory(tensor);
    return memory.work(allgather_async(memory.input.data_ptr(), memory.shape, memory.type,
                                       memory.allocator(), memory.core_options(options)));
  });
}

torch::Tensor allgather(const torch::Tensor& tensor, const TensorAllgatherOptions& options) {
  return allgather_async(tensor, options).wait();
}

TensorWork alltoall_async(const torch::Tensor& tensor, const std::vector<std::int64_t>& splits,
                          const TensorAlltoallOptions& options) {
  warn_of_lost_gradient(tensor, "alltoall");
  return start_or_refuse(call_of("alltoall", OperationKind::kAlltoall, options), tensor, [&] {
    const RowMemory memory(tensor);
    return memory.work(alltoall_async(memory.input.data_ptr(), memory.shape, memory.type, splits,
                                      memory.allocator(), memory.core_options(options)));
  });
}

AlltoallResult alltoall(const torch::Tensor& tensor, const std::vector<std::int64_t>& splits,
                        const TensorAlltoallOptions& options) {
  TensorWork work = alltoall_async(tensor, splits, options);
  torch::Tensor output = work.wait();
  return {std::move(output), work.received_splits()};
}

TensorWork reducescatter_async(const torch::Tensor& tensor,
                               const TensorReducescatterOptions& options) {
  warn_of_lost_gradient(tensor, "reducescatter");
  return start_or_refuse(
      reduction_of("reducescatter", OperationKind::kReduceScatter, options), tensor, [&] {
        const RowMemory memory(tensor);
        return memory.work(reducescatter_async(memory.input.data_ptr(), memory.shape, memory.type,
                                               memory.allocator(), memory.core_reduction(options)));
      });
}

torch::Tensor reducescatter(const torch::Tensor& tensor,
                            const TensorReducescatterOptions& options) {
  return reducescatter_async(tensor, options).wait();
}

std::vector<TensorWork> grouped_allgather_async(const std::vector<torch::Tensor>& tensors,
                                                const TensorAllgatherOptions& options) {
  return start_or_refuse(call_of("allgather", OperationKind::kAllgather, options), tensors, [&] {
    const RowGroup group(tensors);
    return group.works(grouped_allgather_async(group.members(), group.core_options(options)));
  });
}

std::vector<torch::Tensor> grouped_allgather(const std::vector<torch::Tensor>& tensors,
                                             const TensorAllgatherOptions& options) {
  return synchronize(grouped_allgather_async(tensors, options));
}

std::vector<TensorWork> grouped_reducescatter_async(const std::vector<torch::Tensor>& tensors,
                                                    const TensorReducescatterOptions& options) {
  return start_or_refuse(
      reduction_of("reducescatter", OperationKind::kReduceScatter, options), tensors, [&] {
        const RowGroup group(tensors);
        return group.works(
            grouped_reducescatter_async(group.members(), group.core_reduction(options)));
      });
}

std::vector<torch::Tensor> grouped_reducescatter(const std::vector<torch::Tensor>& tensors,
                                                 const TensorReducescatterOptions& options) {
  return synchronize(grouped_reducescatter_async(tensors, options));
}

TensorWork gather_async(const torch::Tensor& tensor, int root, const TensorGatherOptions& options) {
  return start_or_refuse(call_of("gather", OperationKind::kGather, options, root), tensor, [&] {
    const RowMemory memory(tensor);
    return memory.work(gather_async(memory.input.data_ptr(), memory.shape, memory.type, root,
                                    memory.allocator(), memory.core_options(options)));
  });
}

torch::Tensor gather(const torch::Tensor& tensor, int root, const TensorGatherOptions& options) {
  return gather_async(tensor, root, options).wait();
}

TensorWork scatter_async(const torch::Tensor& tensor, int root,
                         const std::vector<std::int64_t>& splits,
                         const TensorScatterOptions& options) {
  return start_or_refuse(call_of("scatter", OperationKind::kScatter, options, root), tensor, [&] {
    const RowMemory memory(tensor);
    return memory.work(scatter_async(memory.input.data_ptr(), memory.shape, memory.type, root,
                                     splits, memory.allocator(), memory.core_options(options)));
  });
}

torch::Tensor scatter(const torch::Tensor& tensor, int root,
                      const std::vector<std::int64_t>& splits,
                      const TensorScatterOptions& options) {
  return scatter_async(tensor, root, splits, options).wait();
}

}  // namespace kolo
