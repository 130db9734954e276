// ProcessGroupKolo: the calls of c10d::Backend as operations of kolo.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/start.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/c10d.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

using namespace c10d_binding;  // NOLINT(google-build-using-namespace)
using TensorLists = std::vector<Tensors>;
using CallWork = c10::intrusive_ptr<c10d::Work>;

}  // namespace

ProcessGroupKolo::ProcessGroupKolo(const ProcessSet& set)
    : Backend(set.rank(), set.size()),
      set_(set),
      ranks_(set.ranks()),
      futures_(std::make_unique<c10d_binding::FutureThread>()) {
  if (rank_ < 0) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("ProcessGroupKolo: rank {} is not in process set {}; its ranks are {}",
                      kolo::rank(), set.id(), fmt::join(ranks_, ", ")));
  }
}

ProcessGroupKolo::~ProcessGroupKolo() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupKolo::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName());
  options->timeout = std::max(timeout_, kNoTimeout);
  options->global_ranks_in_group.assign(ranks_.begin(), ranks_.end());
  return options;
}

void ProcessGroupKolo::setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

void ProcessGroupKolo::abort() {
  kolo::abort("ProcessGroupKolo::abort() was called on rank " + std::to_string(kolo::rank()));
}

int ProcessGroupKolo::world_rank(std::int64_t rank, const char* call) const {
  if (rank < 0 || rank >= size_)
    refuse(call, fmt::format("there is no rank {} in this group; its ranks are 0 to {}", rank,
                             size_ - 1));
  return ranks_[static_cast<std::size_t>(rank)];
}

CallWork ProcessGroupKolo::hand_out(Started started, c10d::OpType type,
                                    std::chrono::milliseconds timeout) {
  return c10::make_intrusive<GroupWork>(
      std::move(started),
      GroupWork::Call{.type = type,
                      .rank = rank_,
                      .sequence = ++sequence_,
                      .timeout = timeout > kNoTimeout ? timeout : timeout_},
      *futures_);
}

CallWork ProcessGroupKolo::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(tensors, "broadcast", "tensor");
  check_types(tensor, {}, "broadcast");
  check_outputs(tensors, "broadcast");
  const Output output(tensor, /*with_elements=*/true);
  return hand_out(
      {.works = {start_broadcast(set_, output.memory(), world_rank(options.rootRank, "broadcast"))},
       .results = tensors,
       .device = tensor.device(),
       .finish = [output] { output.finish(); }},
      c10d::OpType::BROADCAST, options.timeout);
}

CallWork ProcessGroupKolo::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  (void)only(tensors, "allreduce", "tensor");
  return allreduce_each(tensors, options, c10d::OpType::ALLREDUCE);
}

CallWork ProcessGroupKolo::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
  if (tensors.empty()) refuse("allreduce_coalesced", "takes a tensor or more, not 0");
  return allreduce_each(tensors, options, c10d::OpType::ALLREDUCE_COALESCED);
}

CallWork ProcessGroupKolo::allreduce_each(const Tensors& tensors,
                                          const c10d::AllreduceOptions& options,
                                          c10d::OpType type) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : tensors) {
    check_types(tensor, {}, "allreduce");
    check_one_device(tensors.front(), tensor, "allreduce");
  }
  check_outputs(tensors, "allreduce");
  std::vector<ReduceOp> ops;
  for (const torch::Tensor& tensor : tensors)
    ops.push_back(reduce_op(options.reduceOp, tensor, "allreduce"));
  Started started{.results = tensors, .device = tensors.front().device()};
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Output& output = outputs.emplace_back(tensors[i], /*with_elements=*/true);
    started.works.push_back(
        start_allreduce(set_, scaled(output.memory(), options.reduceOp), output.memory(), ops[i]));
  }
  started.finish = finishing(std::move(outputs));
  return hand_out(std::move(started), type, options.timeout);
}

CallWork ProcessGroupKolo::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(tensors, "reduce", "tensor");
  check_types(tensor, {}, "reduce");
  const ReduceOp op = reduce_op(options.reduceOp, tensor, "reduce");
  (void)world_rank(options.rootRank, "reduce");
  if (options.rootRank == rank_) check_outputs(tensors, "reduce");
  const torch::Tensor input = scaled(input_of(tensor), options.reduceOp);
  const Output output(options.rootRank == rank_ ? tensor : torch::empty_like(input));
  return hand_out({.works = {start_allreduce(set_, input, output.memory(), op)},
                   .results = tensors,
                   .device = tensor.device(),
                   .finish = [output] { output.finish(); }},
                  c10d::OpType::REDUCE, options.timeout);
}

CallWork ProcessGroupKolo::allgather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(inputs, "allgather", "input");
  const Tensors& list = only(outputs, "allgather", "list of outputs");
  check_count(list, ranks_.size(), "allgather", "outputs");
  check_types(tensor, list, "allgather");
  check_outputs(list, "allgather");
  check_size(tensor.numel(), list[static_cast<std::size_t>(rank_)].numel(), "allgather", "input");
  const torch::Tensor input = input_of(tensor);
  const std::vector<std::int64_t> sizes = sizes_of(list);
  Started started{.results = list, .device = tensor.device()};
  // Every rank sees all sizes, so all go the same way.
  if (std::all_of(sizes.begin(), sizes.end(), [&](auto size) { return size == sizes.front(); })) {
    const torch::Tensor output = torch::empty({size_, tensor.numel()}, input.options());
    started.works = {start_allgather(set_, input, output)};
    started.finish = [list, output] {
      for (std::size_t i = 0; i < list.size(); ++i)
        copy_to(list[i], output[static_cast<std::int64_t>(i)]);
    };
  } else {
    Parts parts(sizes, input.options());
    parts.start_allgather(set_, input);
    started.works = {parts.work()};
    started.finish = [list, parts, ranks = ranks_] { parts.copy_to(list, "allgather", ranks); };
  }
  return hand_out(std::move(started), c10d::OpType::ALLGATHER, options.timeout);
}

CallWork ProcessGroupKolo::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

CallWork ProcessGroupKolo::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  return start_each(
      outputs, inputs, Whole::kOutput, "all_gather_single",
      [this](const torch::Tensor& input, const torch::Tensor& output) {
        return start_allgather(set_, input, output);
      },
      c10d::OpType::_ALLGATHER_BASE, options.timeout);
}

CallWork ProcessGroupKolo::start_each(const Tensors& outputs, const Tensors& inputs, Whole whole,
                                      const char* call, const Start& start, c10d::OpType type,
                                      std::chrono::milliseconds timeout) {
  const torch::NoGradGuard no_grad;
  if (outputs.empty() || outputs.size() != inputs.size())
    refuse(call, fmt::format("takes an output for each input, not {} for {}", outputs.size(),
                             inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_types(outputs[i], {inputs[i]}, call);
    check_one_device(outputs.front(), outputs[i], call);
    if (whole == Whole::kOutput) {
      check_size(outputs[i].numel(), inputs[i].numel() * size_, call, "output");
    } else {
      check_size(inputs[i].numel(), outputs[i].numel() * size_, call, "input");
    }
  }
  check_outputs(outputs, call);
  Started started{.results = outputs, .device = outputs.front().device()};
  std::vector<Output> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Output& place = places.emplace_back(outputs[i]);
    started.works.push_back(start(input_of(inputs[i]), place.memory()));
  }
  started.finish = finishing(std::move(places));
  return hand_out(std::move(started), type, timeout);
}

Tensors ProcessGroupKolo::list_at_root(TensorLists& lists, std::int64_t root, const char* call,
                                       const char* what) const {
  if (root == rank_) {
    Tensors& list = only(lists, call, fmt::format("list of {} at the root", what).c_str());
    check_count(list, ranks_.size(), call, what);
    return list;
  }
  const bool has_none = lists.empty() || (lists.size() == 1 && lists.front().empty());
  if (!has_none) {
    refuse(call, fmt::format("takes {} at the root alone, which is rank {}, not at rank {}", what,
                             root, rank_));
  }
  return {};
}

CallWork ProcessGroupKolo::gather(TensorLists& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(inputs, "gather", "input");
  const int root = world_rank(options.rootRank, "gather");
  const Tensors list = list_at_root(outputs, options.rootRank, "gather", "outputs");
  check_types(tensor, list, "gather");
  check_outputs(list, "gather");
  const torch::Tensor input = input_of(tensor);
  Parts parts(sizes_of(list), input.options());
  parts.start_gather(set_, input, root);
  return hand_out(
      {.works = {parts.work()},
       .results = list,
       .device = tensor.device(),
       .finish = [list, parts, ranks = ranks_] { parts.copy_to(list, "gather", ranks); }},
      c10d::OpType::GATHER, options.timeout);
}

CallWork ProcessGroupKolo::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                              const c10d::GatherOptions& options) {
  const torch::NoGradGuard no_grad;
  constexpr const char* call = "gather_single";
  check_types(input, {}, call);
  const int root = world_rank(options.rootRank, call);
  const bool is_root = options.rootRank == rank_;
  if (is_root) {
    check_types(output, {input}, call);
    check_size(output.numel(), input.numel() * size_, call, "output");
    check_outputs({output}, call);
  }
  Parts parts(std::vector<std::int64_t>(is_root ? ranks_.size() : 0, input.numel()),
              input.options());
  parts.start_gather(set_, input_of(input), root);
  Started started{.works = {parts.work()}, .device = input.device()};
  if (is_root) {
    started.results = {output};
    started.finish = [output, parts, ranks = ranks_] {
      for (std::size_t i = 0; i < ranks.size(); ++i) (void)parts.from(i, call, ranks);
      copy_to(output, parts.all());
    };
  }
  return hand_out(std::move(started), c10d::OpType::GATHER, options.timeout);
}

CallWork ProcessGroupKolo::scatter(Tensors& outputs, TensorLists& inputs,
                                   const c10d::ScatterOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& output = only(outputs, "scatter", "output");
  const int root = world_rank(options.rootRank, "scatter");
  const Tensors list = list_at_root(inputs, options.rootRank, "scatter", "inputs");
  check_types(output, list, "scatter");
  check_outputs(outputs, "scatter");
  const torch::Tensor input = list.empty() ? torch::empty({0}, output.options()) : flat(list);
  Parts parts({output.numel()}, output.options());
  parts.start_scatter(set_, input, root, sizes_of(list));
  return hand_out(
      {.works = {parts.work()},
       .results = outputs,
       .device = output.device(),
       .finish = [output, parts, root] { copy_to(output, parts.from(0, "scatter", {root})); }},
      c10d::OpType::SCATTER, options.timeout);
}

CallWork ProcessGroupKolo::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ReduceScatterOptions& options) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& output = only(outputs, "reduce_scatter", "output");
  const Tensors& list = only(inputs, "reduce_scatter", "list of inputs");
  check_count(list, ranks_.size(), "reduce_scatter", "inputs");
  check_types(output, list, "reduce_scatter");
  for (const torch::Tensor& part : list)
    check_size(part.numel(), output.numel(), "reduce_scatter", "input of a rank");
  torch::Tensor input = flat(list);
  return _reduce_scatter_base(output, input, options);
}

CallWork ProcessGroupKolo::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

CallWork ProcessGroupKolo::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter_single";
  for (const torch::Tensor& output : outputs) (void)reduce_op(options.reduceOp, output, call);
  return start_each(
      outputs, inputs, Whole::kInput, call,
      [&](const torch::Tensor& input, const torch::Tensor& output) {
        const ReduceOp op = reduce_op(options.reduceOp, output, call);
        return start_reduce_scatter(set_, scaled(input, options.reduceOp), output, op);
      },
      c10d::OpType::_REDUCE_SCATTER_BASE, options.timeout);
}

CallWork ProcessGroupKolo::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<std::int64_t>& output_splits,
                                         std::vector<std::int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) {
  const torch::NoGradGuard no_grad;
  constexpr const char* call = "all_to_all_single";
  check_types(output, {input}, call);
  check_outputs({output}, call);
  const auto sizes = part_sizes(output, output_splits, ranks_.size(), call, "output");
  const auto splits = part_sizes(input, input_splits, ranks_.size(), call, "input");
  // Whether splits are even is known to nobody else, so all go the same way.
  Parts parts(sizes, output.options());
  parts.start_alltoall(set_, input_of(input), splits);
  return hand_out({.works = {parts.work()},
                   .results = {output},
                   .device = output.device(),
                   .finish =
                       [output, parts, ranks = ranks_] {
                         for (std::size_t i = 0; i < ranks.size(); ++i)
                           (void)parts.from(i, call, ranks);
                         copy_to(output, parts.all());
                       }},
                  c10d::OpType::ALLTOALL_BASE, options.timeout);
}

CallWork ProcessGroupKolo::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& options) {
  const torch::NoGradGuard no_grad;
  check_count(outputs, ranks_.size(), "alltoall", "outputs");
  check_count(inputs, ranks_.size(), "alltoall", "inputs");
  check_types(outputs.front(), outputs, "alltoall");
  check_types(outputs.front(), inputs, "alltoall");
  check_outputs(outputs, "alltoall");
  Parts parts(sizes_of(outputs), outputs.front().options());
  parts.start_alltoall(set_, flat(inputs), sizes_of(inputs));
  return hand_out(
      {.works = {parts.work()},
       .results = outputs,
       .device = outputs.front().device(),
       .finish = [outputs, parts, ranks = ranks_] { parts.copy_to(outputs, "alltoall", ranks); }},
      c10d::OpType::ALLTOALL, options.timeout);
}

CallWork ProcessGroupKolo::barrier(const c10d::BarrierOptions& options) {
  return hand_out({.works = {start_barrier(set_)}}, c10d::OpType::BARRIER, options.timeout);
}

CallWork ProcessGroupKolo::send(Tensors& tensors, int to, int tag) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(tensors, "send", "tensor");
  check_types(tensor, {}, "send");
  return hand_out({.works = {start_send(set_, input_of(tensor), world_rank(to, "send"), tag)},
                   .results = tensors,
                   .device = tensor.device(),
                   .peer = to},
                  c10d::OpType::SEND, c10d::kUnsetTimeout);
}

CallWork ProcessGroupKolo::recv(Tensors& tensors, int from, int tag) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = only(tensors, "recv", "tensor");
  check_types(tensor, {}, "recv");
  check_outputs(tensors, "recv");
  const Output output(tensor);
  return hand_out({.works = {start_recv(set_, output.memory(), world_rank(from, "recv"), tag)},
                   .results = tensors,
                   .device = tensor.device(),
                   .finish = [output] { output.finish(); },
                   .peer = from},
                  c10d::OpType::RECV, c10d::kUnsetTimeout);
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group(const ProcessSet& set) {
  const auto backend = c10::make_intrusive<ProcessGroupKolo>(set);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  constexpr auto kType = c10d::ProcessGroup::BackendType::CUSTOM;
  for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::CUDA})
    group->setBackend(device, kType, backend);
  group->setDefaultBackend(kType);
  return group;
}

}  // namespace kolo
