// The valid calls of c10d, each with the result that it must leave.
#include "tests/bindings/c10d/stress/caller.h"

#include <kolo/torch.h>

#include <algorithm>
#include <numeric>

namespace kolo::test {
namespace {

using torch::Tensor;

Part with_rows(const Part& part, std::int64_t rows) {
  Part whole = part;
  whole.sizes.insert(whole.sizes.begin(), rows);
  return whole;
}

bool are_equal(const Sizes& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](auto size) { return size == sizes.front(); });
}

/// The values that rank `from` sends to rank `to`.
Tensor values_between(const Call& call, int size, int from, int to) {
  return values_of(call, 0, from * size + to, call.part(from, to).count());
}

}  // namespace

c10d::ReduceOp Caller::op_of(const Call& call) {
  c10d::ReduceOp op;
  op.op_ = call.op;
  if (call.op != Op::PREMUL_SUM) return op;
  const double factor = factor_of(call, rank_);
  const bool as_tensor = dice_.one_in(2);
  op.supplement_ = as_tensor
                       ? c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(torch::tensor(factor))
                       : c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

void Caller::begin_reduction(Begun& begun) {
  const Call& call = begun.call;
  Tensors tensors;
  for (std::size_t p = 0; p < call.parts.size(); ++p) {
    const std::int64_t count = call.parts[p].count();
    const Tensor mine = values_of(call, p, rank_, count);
    Tensor after = mine;
    if (call.kind == Kind::kBroadcast) {
      if (!is_root(call)) after = values_of(call, p, call.root, count);
    } else if (call.kind != Kind::kReduce || is_root(call)) {
      after = reduced_values(call, p, size_, count);
    }
    tensors.push_back(add(begun, call.parts[p], mine, after));
  }
  if (call.kind == Kind::kBroadcast) {
    begun.works = {group()->broadcast(tensors, {.rootRank = call.root})};
  } else if (call.kind == Kind::kReduce) {
    begun.works = {group()->reduce(tensors, {.reduceOp = op_of(call), .rootRank = call.root})};
  } else if (call.kind == Kind::kAllreduce) {
    begun.works = {group()->allreduce(tensors, {.reduceOp = op_of(call)})};
  } else {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = op_of(call);
    begun.works = {group()->allreduce_coalesced(tensors, options)};
  }
}

void Caller::begin_gathering(Begun& begun) {
  const Call& call = begun.call;
  const bool has_output = call.kind != Kind::kGatherSingle || is_root(call);
  Tensors inputs;
  Tensors outputs;
  for (std::size_t p = 0; p < call.parts.size(); ++p) {
    const std::int64_t count = call.parts[p].count();
    Tensors all;
    for (int r = 0; r < size_; ++r) all.push_back(values_of(call, p, r, count));
    const Tensor mine = all[static_cast<std::size_t>(rank_)];
    const Part whole = with_rows(call.parts[p], size_);
    if (has_output && dice_.one_in(3)) {
      // Somewhere within the output, mostly at this rank's own part.
      const std::int64_t at =
          dice_.one_in(2) ? rank_ * count : dice_.below((size_ - 1) * count + 1);
      Tensor before = torch::zeros_like(torch::cat(all));
      before.narrow(0, at, count).copy_(mine);
      outputs.push_back(add(begun, whole, before, torch::cat(all), Form::kContiguous));
      inputs.push_back(outputs.back().view({-1}).narrow(0, at, count));
      continue;
    }
    inputs.push_back(add_input(begun, call.parts[p], mine));
    outputs.push_back(has_output ? add_output(begun, whole, torch::cat(all)) : Tensor());
  }
  if (call.kind == Kind::kAllgatherBase) {
    begun.works = {group()->_allgather_base(outputs[0], inputs[0])};
  } else if (call.kind == Kind::kAllgatherCoalesced) {
    begun.works = {group()->allgather_into_tensor_coalesced(outputs, inputs)};
  } else {
    begun.works = {group()->gather_into_tensor(outputs[0], inputs[0], {.rootRank = call.root})};
  }
}

void Caller::begin_lists(Begun& begun) {
  const Call& call = begun.call;
  const bool scatters = call.kind == Kind::kScatter;
  const bool has_list = call.kind == Kind::kAllgather || is_root(call);
  const bool in_place = has_list && dice_.one_in(3);
  const auto values = [&](int r) { return values_of(call, 0, r, call.part(r, 0).count()); };
  std::vector<Tensors> lists;
  if (has_list || dice_.one_in(2)) lists.emplace_back();
  for (int r = 0; has_list && r < size_; ++r) {
    const Tensor of_rank = values(r);
    if (scatters || (in_place && r == rank_)) {
      lists[0].push_back(add_input(begun, call.part(r, 0), of_rank));
    } else {
      lists[0].push_back(add_output(begun, call.part(r, 0), of_rank));
    }
  }
  Tensors single;
  const Part part = call.part(rank_, 0);
  if (in_place) {
    single = {lists[0][static_cast<std::size_t>(rank_)]};
  } else if (scatters) {
    single = {add_output(begun, part, values(rank_))};
  } else {
    single = {add_input(begun, part, values(rank_))};
  }
  if (scatters) {
    begun.works = {group()->scatter(single, lists, {.rootRank = call.root})};
  } else if (call.kind == Kind::kGather) {
    begun.works = {group()->gather(lists, single, {.rootRank = call.root})};
  } else {
    begun.works = {group()->allgather(lists, single)};
  }
}

void Caller::begin_reduce_scatter(Begun& begun) {
  const Call& call = begun.call;
  std::vector<Tensors> lists(1);
  Tensors inputs;
  Tensors outputs;
  for (std::size_t p = 0; p < call.parts.size(); ++p) {
    const Part& part = call.parts[p];
    const std::int64_t count = part.count();
    const Tensor mine = values_of(call, p, rank_, size_ * count);
    const Tensor result =
        reduced_values(call, p, size_, size_ * count).narrow(0, rank_ * count, count);
    if (call.kind == Kind::kReduceScatter) {
      for (int r = 0; r < size_; ++r)
        lists[0].push_back(add_input(begun, part, mine.narrow(0, r * count, count)));
      outputs.push_back(add_output(begun, part, result));
    } else if (dice_.one_in(3)) {
      // Somewhere within the input.
      const std::int64_t at =
          dice_.one_in(2) ? rank_ * count : dice_.below((size_ - 1) * count + 1);
      Tensor after = mine.clone();
      after.narrow(0, at, count).copy_(result);
      inputs.push_back(add(begun, with_rows(part, size_), mine, after, Form::kContiguous));
      outputs.push_back(inputs.back().view({-1}).narrow(0, at, count));
    } else {
      inputs.push_back(add_input(begun, with_rows(part, size_), mine));
      outputs.push_back(add_output(begun, part, result));
    }
  }
  const c10d::ReduceScatterOptions options{.reduceOp = op_of(call)};
  if (call.kind == Kind::kReduceScatter) {
    begun.works = {group()->reduce_scatter(outputs, lists, options)};
  } else if (call.kind == Kind::kReduceScatterBase) {
    begun.works = {group()->_reduce_scatter_base(outputs[0], inputs[0], options)};
  } else {
    begun.works = {group()->reduce_scatter_tensor_coalesced(outputs, inputs, options)};
  }
}

void Caller::begin_alltoall_base(Begun& begun) {
  const Call& call = begun.call;
  Sizes to;
  Sizes from;
  Tensors sent;
  Tensors received;
  // The root sends each rank one row more than that rank takes, so all others fail.
  const bool has_more = call.way % 16 == 0 && call.parts[0].count() > 0;
  begun.fails = has_more && !is_root(call);
  Call root_call = call;
  for (std::int64_t& rows : root_call.rows[static_cast<std::size_t>(call.root)])
    rows += has_more ? 1 : 0;
  const Call& mine = is_root(call) ? root_call : call;
  for (int r = 0; r < size_; ++r) {
    to.push_back(mine.rows[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(r)]);
    from.push_back(mine.rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(rank_)]);
    sent.push_back(values_between(mine, size_, rank_, r));
    received.push_back(values_between(mine, size_, r, rank_));
  }
  const std::int64_t rows_to = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  const std::int64_t rows_from = std::accumulate(from.begin(), from.end(), std::int64_t{0});
  Tensor input;
  Tensor output;
  if (begun.fails) {
    input = add_input(begun, with_rows(call.parts[0], rows_to), torch::cat(sent), Form::kAsIs);
    const Tensor stays = torch::ones_like(torch::cat(received));
    output = add_input(begun, with_rows(call.parts[0], rows_from), stays, Form::kAsIs);
  } else if (rows_to == rows_from && dice_.one_in(3)) {
    input = output = add(begun, with_rows(call.parts[0], rows_to), torch::cat(sent),
                         torch::cat(received), Form::kAsIs);
  } else {
    input = add_input(begun, with_rows(call.parts[0], rows_to), torch::cat(sent), Form::kAsIs);
    output =
        add_output(begun, with_rows(call.parts[0], rows_from), torch::cat(received), Form::kAsIs);
  }
  if (are_equal(to) && dice_.one_in(2)) to.clear();
  if (are_equal(from) && dice_.one_in(2)) from.clear();
  begun.works = {group()->alltoall_base(output, input, from, to)};
}

void Caller::begin_alltoall(Begun& begun) {
  const Call& call = begun.call;
  Sizes to;
  Sizes from;
  for (int r = 0; r < size_; ++r) {
    to.push_back(call.part(rank_, r).count());
    from.push_back(call.part(r, rank_).count());
  }
  const bool in_place = to == from && dice_.one_in(3);
  Tensors inputs;
  Tensors outputs;
  for (int r = 0; r < size_; ++r) {
    const Tensor sent = values_between(call, size_, rank_, r);
    const Tensor received = values_between(call, size_, r, rank_);
    if (in_place) {
      inputs.push_back(add(begun, call.part(r, rank_), sent, received));
      outputs.push_back(inputs.back());
    } else {
      inputs.push_back(add_input(begun, call.part(rank_, r), sent));
      outputs.push_back(add_output(begun, call.part(r, rank_), received));
    }
  }
  begun.works = {group()->alltoall(outputs, inputs)};
}

void Caller::begin_message(Begun& begun) {
  const Call& call = begun.call;
  const Tensor values = values_of(call, 0, call.root, call.parts[0].count());
  // Messages of kolo's own API match those of c10d.
  const bool is_kolos = call.root != call.to && dice_.one_in(4);
  const TensorMessageOptions options{.tag = static_cast<std::uint32_t>(call.tag),
                                     .process_set = set_};
  const auto send = [&] {
    Tensors tensors{add_input(begun, call.parts[0], values)};
    if (is_kolos) return kolo::send(tensors[0], ranks_[static_cast<std::size_t>(call.to)], options);
    begun.works.push_back(group()->send(tensors, call.to, call.tag));
  };
  const bool sends_first = dice_.one_in(2);
  if (is_root(call) && sends_first) send();
  if (call.to == rank_) {
    Tensors tensors{add_output(begun, call.parts[0], values)};
    if (is_kolos) {
      recv_(tensors[0], ranks_[static_cast<std::size_t>(call.root)], options);
    } else {
      begun.works.push_back(group()->recv(tensors, call.root, call.tag));
    }
  }
  if (is_root(call) && !sends_first) send();
}

}  // namespace kolo::test
