#include "tests/bindings/core/stress/calls.h"

#include "tests/bindings/core/stress/reduced_output.h"
#include "tests/bindings/core/stress/row_output.h"
#include "tests/bindings/core/stress/values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo::test {
namespace {

std::vector<int> contributors_of(const Step& step) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < step.ranks.size(); ++i)
    if (step.absent.empty() || !step.absent[i]) ranks.push_back(step.ranks[i]);
  return ranks;
}

/// The call that the odd rank makes instead.
Step made_odd(Step step, int place) {
  switch (step.odd) {
    case Odd::kNothing:
    case Odd::kAllocator:
    case Odd::kRefused:
      break;
    case Odd::kType:
      step.type = step.type == DataType::kInt32 ? DataType::kInt64 : DataType::kInt32;
      break;
    case Odd::kShape:
      step.tail.push_back(2);
      break;
    case Odd::kRoot: {
      const auto it = std::find(step.ranks.begin(), step.ranks.end(), step.root);
      step.root = it + 1 == step.ranks.end() ? step.ranks.front() : *(it + 1);
      break;
    }
    case Odd::kKind:
      step.act = step.act == Act::kBarrier ? Act::kAllreduce : Act::kBarrier;
      break;
    case Odd::kPlace:
      step.on_gpu = !step.on_gpu;
      break;
    case Odd::kSplits:
      ++step.splits[static_cast<std::size_t>(place)].front();
      break;
  }
  return step;
}

}  // namespace

bool Caller::takes_part(const Step& step) const {
  if (step.act == Act::kMessage) return step.root == rank_ || step.to == rank_;
  return step.place_of(rank_) >= 0;
}

ProcessSet Caller::set_of(const Step& step) const {
  return step.set == kWorld ? ProcessSet() : sets_.at(step.set);
}

void Caller::begin_allreduce(Begun& begun, const std::vector<int>& contributors, int divisor,
                             bool blocking) {
  const Step& step = begun.step;
  auto reduced =
      std::make_shared<ReducedOutput>(step, rank_, contributors, divisor, dice_, gpu_of(step));
  AllreduceOptions options{.op = step.op,
                           .name = step.name,
                           .prescale = step.prescale,
                           .postscale = step.postscale,
                           .absent = reduced->absent(),
                           .keep_alive = reduced->hand_over_input(),
                           .process_set = set_of(step),
                           .stream = stream_of(step)};
  const void* const input = reduced->absent() && dice_.one_in(2) ? nullptr : reduced->input();
  begun.verify = [reduced] { return reduced->wrong(); };
  if (blocking) {
    allreduce(input, reduced->output(), reduced->shape(), step.type, options);
    return;
  }
  begun.works = {allreduce_async(input, reduced->output(), reduced->shape(), step.type, options)};
  begun.verify = [reduced, work = begun.works.front()] {
    if (work->contributors() != static_cast<int>(reduced->contributors().size()))
      return fmt::format("{} contributors", work->contributors());
    return reduced->wrong();
  };
}

void Caller::begin_grouped(Begun& begun) {
  const Step& step = begun.step;
  if (step.act != Act::kAllreduce) {
    std::vector<RowMember> members;
    std::vector<std::shared_ptr<RowOutput>> outputs;
    for (const Step& member : step.members) {
      outputs.push_back(std::make_shared<RowOutput>(member, rank_, dice_, gpu_of(step)));
      members.push_back({outputs.back()->input(), outputs.back()->input_shape(), member.type,
                         outputs.back()->allocator()});
    }
    begun.works = step.act == Act::kAllgather
                      ? grouped_allgather_async(members, {.name = step.name,
                                                          .process_set = set_of(step),
                                                          .stream = stream_of(step)})
                      : grouped_reducescatter_async(members, {.op = step.op,
                                                              .name = step.name,
                                                              .prescale = step.prescale,
                                                              .postscale = step.postscale,
                                                              .process_set = set_of(step),
                                                              .stream = stream_of(step)});
    begun.verify = [outputs, works = begun.works] {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const std::string wrong = outputs[i]->wrong(works[i]->received_splits());
        if (!wrong.empty()) return fmt::format("member {}: {}", i, wrong);
      }
      return std::string();
    };
    return;
  }
  std::vector<GroupMember> members;
  std::vector<std::shared_ptr<ReducedOutput>> outputs;
  for (const Step& member : step.members) {
    outputs.push_back(std::make_shared<ReducedOutput>(member, rank_, contributors_of(member),
                                                      step.size(), dice_, gpu_of(step)));
    const ReducedOutput& reduced = *outputs.back();
    members.push_back({.input = reduced.input(),
                       .output = reduced.output(),
                       .shape = reduced.shape(),
                       .type = member.type,
                       .absent = reduced.absent()});
  }
  begun.works = grouped_allreduce_async(members, {.op = step.op,
                                                  .name = step.name,
                                                  .prescale = step.prescale,
                                                  .postscale = step.postscale,
                                                  .process_set = set_of(step),
                                                  .stream = stream_of(step)});
  begun.verify = [outputs] {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string wrong = outputs[i]->wrong();
      if (!wrong.empty()) return fmt::format("member {}: {}", i, wrong);
    }
    return std::string();
  };
}

void Caller::begin_broadcast(Begun& begun) {
  const Step& step = begun.step;
  const std::int64_t count = step.rows * step.tail_elements();
  const std::size_t width = size_of(step.type);
  const Block block(static_cast<std::size_t>(count) * width, width, dice_, gpu_of(step));
  const auto values_of = [step](int rank) {
    return [step, rank](std::int64_t i) { return input_value(step, rank, i); };
  };
  fill(block.data(), step.type, count, 0, values_of(rank_));
  block.push();
  begun.works = {
      broadcast_async(block.place(), shape_of(step, step.rows), step.type, step.root,
                      {.name = step.name, .process_set = set_of(step), .stream = stream_of(step)})};
  begun.verify = [=] {
    block.pull();
    const std::string wrong = compare(block.data(), step.type, count, 0, values_of(step.root));
    return wrong.empty() ? block.damage() : wrong;
  };
}

void Caller::begin_rows(Begun& begun) {
  auto rows = std::make_shared<RowOutput>(begun.step, rank_, dice_, gpu_of(begun.step));
  // An empty output needs no memory, so its allocator cannot fail.
  if (begun.step.odd == Odd::kAllocator && rows->is_empty()) begun.step.odd = Odd::kNothing;
  const Step& step = begun.step;
  const Shape shape = rows->input_shape();
  const void* const input = rows->input();
  Allocator allocator = rows->allocator();
  if (step.odd == Odd::kAllocator && step.odd_rank == rank_)
    allocator = [](const Shape&) -> void* { throw std::bad_alloc(); };
  const CollectiveOptions options{
      .name = step.name, .process_set = set_of(step), .stream = stream_of(step)};
  const auto place = static_cast<std::size_t>(step.place_of(rank_));
  const auto splits = [&](std::size_t i) { return step.splits.at(i); };
  std::shared_ptr<Work> work;
  switch (step.act) {
    case Act::kAllgather:
      work = allgather_async(input, shape, step.type, allocator, options);
      break;
    case Act::kAlltoall:
      work = alltoall_async(input, shape, step.type, splits(place), allocator, options);
      break;
    case Act::kReduceScatter:
      work = reducescatter_async(input, shape, step.type, allocator,
                                 {.op = step.op,
                                  .name = step.name,
                                  .prescale = step.prescale,
                                  .postscale = step.postscale,
                                  .process_set = set_of(step),
                                  .stream = stream_of(step)});
      break;
    case Act::kGather:
      work = gather_async(input, shape, step.type, step.root, allocator, options);
      break;
    case Act::kScatter:
      work = scatter_async(input, shape, step.type, step.root,
                           splits(static_cast<std::size_t>(step.place_of(step.root))), allocator,
                           options);
      break;
    case Act::kAllreduce:
    case Act::kBroadcast:
    case Act::kBarrier:
    case Act::kMessage:
      throw std::logic_error("these have no rows");
  }
  begun.works = {work};
  begun.verify = [rows, work] { return rows->wrong(work->received_splits()); };
}

void Caller::begin_message(Begun& begun, bool blocking) {
  const Step& step = begun.step;
  const std::int64_t count = step.rows * step.tail_elements();
  const std::size_t width = size_of(step.type);
  const MessageOptions options{
      .tag = step.tag, .process_set = set_of(step), .stream = stream_of(step)};
  const auto values = [step](std::int64_t i) { return input_value(step, step.root, i); };
  blocking = blocking && step.root != step.to;
  std::function<std::string()> verify = [] { return std::string(); };
  if (step.to == rank_) {
    const Block block(static_cast<std::size_t>(count) * width, width, dice_, gpu_of(step));
    block.push();
    verify = [=] {
      block.pull();
      const std::string wrong = compare(block.data(), step.type, count, 0, values);
      return wrong.empty() ? block.damage() : wrong;
    };
    if (blocking) {
      recv(block.place(), count, step.type, step.root, options);
    } else {
      begun.works.push_back(recv_async(block.place(), count, step.type, step.root, options));
    }
  }
  if (step.root == rank_) {
    const Block block(static_cast<std::size_t>(count) * width, width, dice_, gpu_of(step));
    fill(block.data(), step.type, count, 0, values);
    block.push();
    if (blocking) {
      send(block.place(), count, step.type, step.to, options);
    } else {
      begun.works.push_back(send_async(block.place(), count, step.type, step.to, options));
    }
    verify = [=] {
      block.pull();
      const std::string wrong = compare(block.data(), step.type, count, 0, values);
      return wrong.empty() ? verify() : wrong;
    };
  }
  begun.verify = verify;
}

Begun Caller::begin(const Step& step, bool blocking) {
  const bool odd = step.odd != Odd::kNothing;
  Begun begun{.step = odd && step.odd_rank == rank_ ? made_odd(step, step.place_of(rank_)) : step};
  const bool waits = blocking && !odd;
  switch (begun.step.act) {
    case Act::kAllreduce:
      if (!step.members.empty()) {
        begin_grouped(begun);
      } else {
        begin_allreduce(begun, contributors_of(begun.step), step.size(), waits);
      }
      break;
    case Act::kBroadcast:
      begin_broadcast(begun);
      break;
    case Act::kBarrier:
      begun.works = {barrier_async({.name = step.name, .process_set = set_of(step)})};
      begun.verify = [] { return std::string(); };
      break;
    case Act::kMessage:
      begin_message(begun, waits);
      break;
    case Act::kAllgather:
    case Act::kAlltoall:
    case Act::kReduceScatter:
    case Act::kGather:
    case Act::kScatter:
      step.members.empty() ? begin_rows(begun) : begin_grouped(begun);
      break;
  }
  if (waits) {
    for (const auto& work : begun.works) synchronize(*work);
  }
  return begun;
}

Begun Caller::begin_joined(const Step& step, const std::vector<int>& contributors) {
  Begun begun{.step = step};
  begin_allreduce(begun, contributors, static_cast<int>(contributors.size()), false);
  return begun;
}

void Caller::end(Begun& begun) {
  const Step& step = begun.step;
  const auto complain = [&](const std::string& what) {
    throw Wrong(fmt::format("'{}' (act {}, {} {}, tag {}) of ranks {}: {}", step.name,
                            static_cast<int>(step.act), to_string(step.op), to_string(step.type),
                            step.tag, fmt::join(step.ranks, " "), what));
  };
  const bool alone = step.odd == Odd::kAllocator;
  const bool fails =
      step.odd != Odd::kNothing && step.odd != Odd::kRefused && (!alone || step.odd_rank == rank_);
  Status first;
  for (const auto& work : begun.works) {
    const Status status = work->wait();
    if (first.ok()) first = status;
    if (fails && status.ok()) complain("did not fail, though a rank called something else");
  }
  if (!fails) {
    if (!first.ok()) throw Exception(first.error());
    for (const auto& work : begun.works) {
      const Status ordered = step.on_gpu ? work->order(gpu_->stream()) : Status();
      if (!ordered.ok()) throw Exception(ordered.error());
    }
    const std::string wrong = begun.verify();
    if (!wrong.empty()) complain(wrong);
    return;
  }
  const ErrorCode code = first.error().code;
  const bool right = alone ? code == ErrorCode::kOutOfMemory
                           : code == ErrorCode::kMismatch || code == ErrorCode::kInvalidArgument;
  if (!right) throw Exception(first.error());
  const std::string named =
      step.act == Act::kMessage ? fmt::format("tag {}", step.tag) : fmt::format("'{}'", step.name);
  // Otherwise something else has failed.
  if (first.error().message.find(named) == std::string::npos) throw Exception(first.error());
}

}  // namespace kolo::test
