// Forward and backward of each collective. Forward runs on user threads, backward on autograd's.
// All are linear, and backward uses these functions again, so create_graph works through them.
#include "bindings/torch/tensors/collective_function.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/autograd_functions.h>

#include <string>
#include <utility>

namespace kolo::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_linear(ReduceOp op, const std::string& name) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return;
  raise(ErrorCode::kUnsupported, "tensor '" + name + "': the gradient of " +
                                     std::string(to_string(op)) +
                                     " over ranks is not defined here; use sum or average");
}

ProcessSet set_of(AutogradContext* context) {
  return ProcessSet(static_cast<std::uint32_t>(context->saved_data["set"].toInt()));
}

void save_set(AutogradContext* context, const ProcessSet& set) {
  context->saved_data["set"] = static_cast<std::int64_t>(set.id());
}

ReduceOp op_of(AutogradContext* context) {
  return static_cast<ReduceOp>(context->saved_data["op"].toInt());
}

double factor_of(AutogradContext* context) { return context->saved_data["factor"].toDouble(); }

template <class Options>
void save_reduction(AutogradContext* context, const Options& options) {
  check_linear(options.op, options.name);
  save_set(context, options.process_set);
  context->saved_data["op"] = static_cast<std::int64_t>(options.op);
  context->saved_data["factor"] = options.prescale * options.postscale;
}

struct Allreduce : CollectiveFunction<Allreduce> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor,
                               const TensorAllreduceOptions& options) {
    save_reduction(context, options);
    return kolo::allreduce(tensor, options);
  }
  static variable_list gradients(AutogradContext* context, variable_list outer) {
    return {autograd::allreduce(outer[0], {.op = op_of(context),
                                           .postscale = factor_of(context),
                                           .process_set = set_of(context)}),
            {}};
  }
};

struct Broadcast : CollectiveFunction<Broadcast> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor, int root,
                               const TensorBroadcastOptions& options) {
    save_set(context, options.process_set);
    context->saved_data["root"] = static_cast<std::int64_t>(root);
    return kolo::broadcast(tensor, root, options);
  }
  static variable_list gradients(AutogradContext* context, variable_list outer) {
    const torch::Tensor sum = autograd::allreduce(outer[0], {.process_set = set_of(context)});
    const bool is_root = kolo::rank() == context->saved_data["root"].toInt();
    // Zeros that keep the graph: the backward of this sum is a collective of all ranks, too.
    const auto all = torch::ones({}, sum.options().dtype(torch::kBool).requires_grad(false));
    return {is_root ? sum : sum.masked_fill(all, 0), {}, {}};
  }
};

struct Allgather : CollectiveFunction<Allgather> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor,
                               const TensorAllgatherOptions& options) {
    save_set(context, options.process_set);
    TensorWork work = kolo::allgather_async(tensor, options);
    torch::Tensor output = work.wait();
    context->saved_data["rows"] = work.received_splits();
    return output;
  }
  static variable_list gradients(AutogradContext* context, variable_list outer) {
    // Parts are uneven, so each rank's rows are sent to it and summed there.
    const std::vector<std::int64_t> rows = context->saved_data["rows"].toIntVector();
    const ProcessSet set = set_of(context);
    const std::int64_t mine = rows[static_cast<std::size_t>(set.rank())];
    const auto exchanged = autograd::alltoall(outer[0].contiguous(), rows, {.process_set = set});
    std::vector<std::int64_t> shape = exchanged.sizes().vec();
    shape.front() = mine;
    shape.insert(shape.begin(), set.size());
    return {exchanged.reshape(shape).sum(0), {}};
  }
};

struct Alltoall : CollectiveFunction<Alltoall> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor,
                               const std::vector<std::int64_t>& splits,
                               const TensorAlltoallOptions& options) {
    save_set(context, options.process_set);
    AlltoallResult result = kolo::alltoall(tensor, splits, options);
    context->saved_data["received"] = result.received_splits;
    return result.output;
  }
  static variable_list gradients(AutogradContext* context, variable_list outer) {
    const auto received = context->saved_data["received"].toIntVector();
    return {autograd::alltoall(outer[0], received, {.process_set = set_of(context)}), {}, {}};
  }
};

struct Reducescatter : CollectiveFunction<Reducescatter> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor,
                               const TensorReducescatterOptions& options) {
    save_reduction(context, options);
    return kolo::reducescatter(tensor, options);
  }
  static variable_list gradients(AutogradContext* context, variable_list outer) {
    const ProcessSet set = set_of(context);
    const double divisor = op_of(context) == ReduceOp::kAverage ? set.size() : 1;
    return {autograd::allgather(outer[0], {.process_set = set}) * (factor_of(context) / divisor),
            {}};
  }
};

}  // namespace

torch::Tensor allreduce(const torch::Tensor& tensor, const TensorAllreduceOptions& options) {
  return Allreduce::apply(tensor, options);
}

torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                        const TensorBroadcastOptions& options) {
  return Broadcast::apply(tensor, root, options);
}

torch::Tensor allgather(const torch::Tensor& tensor, const TensorAllgatherOptions& options) {
  return Allgather::apply(tensor, options);
}

torch::Tensor alltoall(const torch::Tensor& tensor, const std::vector<std::int64_t>& splits,
                       const TensorAlltoallOptions& options) {
  return Alltoall::apply(tensor, splits, options);
}

torch::Tensor reducescatter(const torch::Tensor& tensor,
                            const TensorReducescatterOptions& options) {
  return Reducescatter::apply(tensor, options);
}

}  // namespace kolo::autograd
