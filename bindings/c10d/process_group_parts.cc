// ProcessGroupKolo: the calls of c10d::Backend whose tensors have a part for each rank. User
// threads; one thread at a time for each group.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/start.h"
#include "bindings/torch/tensors/sparse_parts.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/c10d.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

using namespace c10d_binding;  // NOLINT(google-build-using-namespace)
using CallWork = c10::intrusive_ptr<c10d::Work>;

/// Whether all parts but that of rank `but` have `size` elements. Undefined ones do not count.
bool are_all_of(std::int64_t size, const Tensors& list, std::size_t but) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (i != but && list[i].defined() && list[i].numel() != size) return false;
  return true;
}

bool are_even(const TensorLists& lists) {
  if (lists.size() != 1 || lists.front().empty()) return true;
  const Tensors& list = lists.front();
  return !list[0].defined() || are_all_of(list[0].numel(), list, list.size());
}

}  // namespace

CallWork ProcessGroupKolo::allgather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor tensor = first_of(inputs);
  // Every rank sees all sizes, so all ranks choose the same branch.
  const bool is_even = are_even(outputs);
  const auto check = [&] {
    (void)only(inputs, "allgather", "input");
    const Tensors& parts = only(outputs, "allgather", "list of outputs");
    check_count(parts, ranks_.size(), "allgather", "outputs");
    check_types(tensor, parts, "allgather");
    check_outputs(parts, "allgather");
    check_size(tensor.numel(), parts[static_cast<std::size_t>(rank_)].numel(), "allgather",
               "input");
    return parts;
  };
  const Called negotiated{.kind = OperationKind::kAllgather};
  const Called even{OperationKind::kAllgather, in_order(first_defined(inputs, outputs))};
  const auto check_negotiated = [&] { return checked(set(), negotiated, check); };
  // If this rank's input or its own output is wrong, the others' calls may be of either kind.
  const bool may_be_even =
      !is_even && even.in_order && tensor.defined() &&
      are_all_of(tensor.numel(), outputs.front(), static_cast<std::size_t>(rank_));
  const Tensors list = is_even       ? checked(set(), even, check)
                       : may_be_even ? checked(set(), even, check_negotiated)
                                     : check_negotiated();
  const torch::Tensor input = input_of(tensor);
  Started started{
      .results = list, .device = tensor.device(), .title = "kolo:all_gather", .inputs = inputs};
  if (is_even) {
    const torch::Tensor output = torch::empty({size_, tensor.numel()}, input.options());
    started.works = {start_allgather(set(), input, output, !options.asyncOp)};
    started.finish = [list, output] {
      for (std::size_t i = 0; i < list.size(); ++i)
        copy_to(list[i], output[static_cast<std::int64_t>(i)]);
    };
  } else {
    Parts parts(sizes_of(list), input.options());
    parts.start(set(), OperationKind::kAllgather, input);
    started.works = {parts.work()};
    started.finish = [list, parts, ranks = ranks_] { parts.copy_to(list, "allgather", ranks); };
  }
  return to_work(std::move(started), c10d::OpType::ALLGATHER, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  const torch::NoGradGuard no_grad;
  constexpr const char* call = "allgather_coalesced";
  const Called called{.kind = OperationKind::kAllgather,
                      .in_order = in_order(first_defined(inputs, outputs)),
                      .operations = std::max(inputs.size(), std::size_t{1})};
  checked(set(), called, [&] {
    if (inputs.empty()) refuse(call, "takes an input or more, not 0");
    if (outputs.size() != ranks_.size()) {
      refuse(call, fmt::format("takes {} lists of outputs, one of each rank, not {}", ranks_.size(),
                               outputs.size()));
    }
    for (const Tensors& list : outputs) {
      if (list.size() != inputs.size()) {
        refuse(call, fmt::format("takes an output of each rank for each input, not {} for {}",
                                 list.size(), inputs.size()));
      }
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        check_types(inputs[i], {list[i]}, call);
        check_one_device(inputs.front(), inputs[i], call);
        check_size(list[i].numel(), inputs[i].numel(), call, "output");
      }
      check_outputs(list, call);
    }
  });
  Started started{.device = inputs.front().device(), .title = "kolo:all_gather", .inputs = inputs};
  Tensors gathered;
  for (const torch::Tensor& tensor : inputs) {
    const torch::Tensor input = input_of(tensor);
    gathered.push_back(torch::empty({size_, tensor.numel()}, input.options()));
    started.works.push_back(start_allgather(set(), input, gathered.back(), !options.asyncOp));
  }
  for (const Tensors& list : outputs)
    started.results.insert(started.results.end(), list.begin(), list.end());
  started.finish = [outputs, gathered] {
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      for (std::size_t i = 0; i < gathered.size(); ++i)
        copy_to(outputs[rank][i], gathered[i][static_cast<std::int64_t>(rank)]);
  };
  return to_work(std::move(started), c10d::OpType::ALLGATHER_COALESCED, options.timeout,
                 options.asyncOp);
}

CallWork ProcessGroupKolo::allreduce_sparse(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  const torch::NoGradGuard no_grad;
  static constexpr const char* call = "allreduce_sparse";
  const torch::Tensor mine = checked(set(), {.kind = OperationKind::kAllgather}, [&] {
    const torch::Tensor& tensor = only(tensors, call, "tensor");
    if (!tensor.defined() || tensor.layout() != torch::kSparse)
      refuse(call, "takes a sparse COO tensor");
    if (options.reduceOp.op_ != c10d::ReduceOp::SUM)
      raise(ErrorCode::kUnsupported, "c10d allreduce_sparse: kolo reduces sparse tensors by SUM");
    (void)reduce_op(options.reduceOp, tensor._values(), call);
    return sparse_part_of(tensor, tensor.device(), set());
  });
  Parts parts({}, mine.options());
  parts.start(set(), OperationKind::kAllgather, mine);
  const torch::Tensor tensor = tensors.front();
  const auto sum_up = [tensor, parts, set = set()] {
    const c10::InferenceMode normal(false);  // the user's tensor takes what is made here
    const torch::NoGradGuard without_grad;
    tensor.copy_(sum_of_sparse_parts(parts.all(), "c10d allreduce_sparse", set));
  };
  return to_work({.works = {parts.work()},
                  .results = tensors,
                  .device = tensor.device(),
                  .finish = sum_up,
                  .title = "kolo:all_reduce",
                  .inputs = tensors},
                 c10d::OpType::_ALLREDUCE_SPARSE, options.timeout, options.asyncOp);
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
      outputs, inputs, Whole::kOutput, "all_gather_single", c10d::ReduceOp::SUM,
      [&](const torch::Tensor& input, const torch::Tensor& output) {
        return start_allgather(set(), input, output, !options.asyncOp);
      },
      c10d::OpType::_ALLGATHER_BASE, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::start_each(const Tensors& outputs, const Tensors& inputs, Whole whole,
                                      const char* call, const c10d::ReduceOp& op,
                                      const Start& start, c10d::OpType type,
                                      std::chrono::milliseconds timeout, bool is_async) {
  const torch::NoGradGuard no_grad;
  const bool gathers = whole == Whole::kOutput;
  const Called called{.kind = gathers ? OperationKind::kAllgather : OperationKind::kReduceScatter,
                      .in_order = in_order(first_defined(inputs, outputs)),
                      .operations = std::max(inputs.size(), std::size_t{1})};
  checked(set(), called, [&] {
    if (outputs.empty() || outputs.size() != inputs.size())
      refuse(call, fmt::format("takes an output for each input, not {} for {}", outputs.size(),
                               inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_types(outputs[i], {inputs[i]}, call);
      check_one_device(outputs.front(), outputs[i], call);
      if (gathers) {
        check_size(outputs[i].numel(), inputs[i].numel() * size_, call, "output");
      } else {
        (void)reduce_op(op, outputs[i], call);
        check_size(inputs[i].numel(), outputs[i].numel() * size_, call, "input");
      }
    }
    check_outputs(outputs, call);
  });
  Started started{.results = outputs,
                  .device = outputs.front().device(),
                  .title = gathers ? "kolo:all_gather" : "kolo:reduce_scatter",
                  .inputs = inputs};
  std::vector<Output> elsewhere;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Output output(outputs[i], op);
    started.works.push_back(start(input_of(inputs[i]), output.memory()));
    if (output.is_elsewhere()) elsewhere.push_back(std::move(output));
  }
  started.finish = finishing(std::move(elsewhere));
  return to_work(std::move(started), type, timeout, is_async);
}

std::pair<int, Tensors> ProcessGroupKolo::check_rooted(const Rooted& names, Tensors& own,
                                                       TensorLists& lists,
                                                       std::int64_t root) const {
  const int world_root = world_rank(root, names.call);
  const torch::Tensor& tensor = only(own, names.call, names.own);
  const bool is_root = root == rank_;
  const bool has_none = lists.empty() || (lists.size() == 1 && lists.front().empty());
  if (!is_root && !has_none) {
    refuse(names.call, fmt::format("takes {} at the root alone, which is rank {}, not at rank {}",
                                   names.all, root, rank_));
  }
  Tensors list;
  if (is_root) {
    list = only(lists, names.call, fmt::format("list of {} at the root", names.all).c_str());
    check_count(list, ranks_.size(), names.call, names.all);
  }
  check_types(tensor, list, names.call);
  return {world_root, std::move(list)};
}

CallWork ProcessGroupKolo::gather(TensorLists& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto [root, list] = checked(set(), {OperationKind::kGather}, [&] {
    auto rooted = check_rooted({"gather", "input", "outputs"}, inputs, outputs, options.rootRank);
    check_outputs(rooted.second, "gather");
    return rooted;
  });
  const torch::Tensor input = input_of(inputs.front());
  Parts parts(sizes_of(list), input.options());
  parts.start(set(), OperationKind::kGather, input, root);
  return to_work(
      {.works = {parts.work()},
       .results = list,
       .device = input.device(),
       .finish = [list = list, parts, ranks = ranks_] { parts.copy_to(list, "gather", ranks); },
       .title = "kolo:gather",
       .inputs = inputs},
      c10d::OpType::GATHER, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                              const c10d::GatherOptions& options) {
  const torch::NoGradGuard no_grad;
  constexpr const char* call = "gather_single";
  const bool is_root = options.rootRank == rank_;
  const int root = checked(set(), {OperationKind::kGather, in_order(input)}, [&] {
    check_types(input, {}, call);
    if (is_root) {
      check_types(output, {input}, call);
      check_size(output.numel(), input.numel() * size_, call, "output");
      check_outputs({output}, call);
    }
    return world_rank(options.rootRank, call);
  });
  const torch::Tensor own = input_of(input);
  Started started{.device = input.device(), .title = "kolo:gather", .inputs = input};
  if (is_root) started.results = {output};
  if (own.is_cpu()) {
    const Output into(is_root ? output : own);
    started.works = {start_gather_on_host(set(), own, into.memory(), root, !options.asyncOp)};
    started.finish = finishing(into);
    return to_work(std::move(started), c10d::OpType::GATHER, options.timeout, options.asyncOp);
  }
  Parts parts(std::vector<std::int64_t>(is_root ? ranks_.size() : 0, input.numel()),
              input.options());
  parts.start(set(), OperationKind::kGather, own, root);
  started.works = {parts.work()};
  if (is_root) {
    started.finish = [output, parts, ranks = ranks_] {
      for (std::size_t i = 0; i < ranks.size(); ++i) (void)parts.from(i, call, ranks);
      copy_to(output, parts.all());
    };
  }
  return to_work(std::move(started), c10d::OpType::GATHER, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::scatter(Tensors& outputs, TensorLists& inputs,
                                   const c10d::ScatterOptions& options) {
  const torch::NoGradGuard no_grad;
  const auto [root, list] = checked(set(), {OperationKind::kScatter}, [&] {
    auto rooted = check_rooted({"scatter", "output", "inputs"}, outputs, inputs, options.rootRank);
    check_outputs(outputs, "scatter");
    return rooted;
  });
  const torch::Tensor output = outputs.front();
  const torch::Tensor input = list.empty() ? torch::empty({0}, output.options()) : flat(list);
  Parts parts({output.numel()}, output.options());
  parts.start(set(), OperationKind::kScatter, input, root, sizes_of(list));
  return to_work({.works = {parts.work()},
                  .results = outputs,
                  .device = output.device(),
                  .finish = [output, parts,
                             root = root] { copy_to(output, parts.from(0, "scatter", {root})); },
                  .title = "kolo:scatter",
                  .inputs = list},
                 c10d::OpType::SCATTER, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ReduceScatterOptions& options) {
  const torch::NoGradGuard no_grad;
  const Called called{OperationKind::kReduceScatter, in_order(first_defined(outputs, inputs))};
  torch::Tensor input = checked(set(), called, [&] {
    const torch::Tensor& output = only(outputs, "reduce_scatter", "output");
    const Tensors& list = only(inputs, "reduce_scatter", "list of inputs");
    check_count(list, ranks_.size(), "reduce_scatter", "inputs");
    check_types(output, list, "reduce_scatter");
    for (const torch::Tensor& part : list)
      check_size(part.numel(), output.numel(), "reduce_scatter", "input of a rank");
    return flat(list);
  });
  return _reduce_scatter_base(outputs[0], input, options);
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
  return start_each(
      outputs, inputs, Whole::kInput, call, options.reduceOp,
      [&](const torch::Tensor& input, const torch::Tensor& output) {
        const ReduceOp op = reduce_op(options.reduceOp, input, call);
        return start_reduce_scatter(set(), reduced_form(input, options.reduceOp), output, op,
                                    !options.asyncOp);
      },
      c10d::OpType::_REDUCE_SCATTER_BASE, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<std::int64_t>& output_splits,
                                         std::vector<std::int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) {
  const torch::NoGradGuard no_grad;
  constexpr const char* call = "all_to_all_single";
  const auto [sizes, splits] = checked(set(), {OperationKind::kAlltoall}, [&] {
    check_types(output, {input}, call);
    check_outputs({output}, call);
    return std::pair(part_sizes(output, output_splits, ranks_.size(), call, "output"),
                     part_sizes(input, input_splits, ranks_.size(), call, "input"));
  });
  // No other rank knows whether this rank's splits are even, so all ranks take one path.
  Parts parts(sizes, output.options());
  parts.start(set(), OperationKind::kAlltoall, input_of(input), 0, splits);
  return to_work({.works = {parts.work()},
                  .results = {output},
                  .device = output.device(),
                  .finish =
                      [output, parts, ranks = ranks_] {
                        for (std::size_t i = 0; i < ranks.size(); ++i)
                          (void)parts.from(i, call, ranks);
                        copy_to(output, parts.all());
                      },
                  .title = "kolo:all_to_all",
                  .inputs = input},
                 c10d::OpType::ALLTOALL_BASE, options.timeout, options.asyncOp);
}

CallWork ProcessGroupKolo::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& options) {
  const torch::NoGradGuard no_grad;
  checked(set(), {OperationKind::kAlltoall}, [&] {
    check_count(outputs, ranks_.size(), "alltoall", "outputs");
    check_count(inputs, ranks_.size(), "alltoall", "inputs");
    check_types(outputs.front(), outputs, "alltoall");
    check_types(outputs.front(), inputs, "alltoall");
    check_outputs(outputs, "alltoall");
  });
  Parts parts(sizes_of(outputs), outputs.front().options());
  parts.start(set(), OperationKind::kAlltoall, flat(inputs), 0, sizes_of(inputs));
  return to_work(
      {.works = {parts.work()},
       .results = outputs,
       .device = outputs.front().device(),
       .finish = [outputs, parts, ranks = ranks_] { parts.copy_to(outputs, "alltoall", ranks); },
       .title = "kolo:all_to_all",
       .inputs = inputs},
      c10d::OpType::ALLTOALL, options.timeout, options.asyncOp);
}

}  // namespace kolo
