// The in-order calls of a random program; some of them are invalid. One thread per process set.
#include "bindings/core/ordered_start.h"
#include "tests/bindings/core/stress/calls.h"
#include "tests/bindings/core/stress/values.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kolo::test {
namespace {

/// Elements of the input, and of the output.
std::pair<std::int64_t, std::int64_t> counts_of(const Step& step, bool is_root) {
  const std::int64_t part = step.rows;
  const std::int64_t whole = part * step.size();
  switch (step.act) {
    case Act::kAllreduce:
    case Act::kBroadcast:
      return {part, part};
    case Act::kAllgather:
      return {part, whole};
    case Act::kAlltoall:
      return {whole, whole};
    case Act::kReduceScatter:
      return {whole, part};
    case Act::kGather:
      return {part, is_root ? whole : 0};
    case Act::kScatter:
      return {is_root ? whole : 0, part};
    case Act::kBarrier:
    case Act::kMessage:
      break;
  }
  return {0, 0};
}

std::string wrong_of(const Step& step, int place, bool is_root, const std::byte* output) {
  const auto of_rank = [&](int rank) {
    return [&step, rank](std::int64_t i) { return input_value(step, rank, i); };
  };
  const auto reduced = [&](std::int64_t i) {
    return reduced_value(step, step.ranks, step.size(), i);
  };
  if (step.act == Act::kAllreduce) return compare(output, step.type, step.rows, 0, reduced);
  if (step.act == Act::kReduceScatter)
    return compare(output, step.type, step.rows, place * step.rows, reduced);
  if (step.act == Act::kBroadcast)
    return compare(output, step.type, step.rows, 0, of_rank(step.root));
  if (step.act == Act::kScatter)
    return compare(output, step.type, step.rows, place * step.rows, of_rank(step.root));
  const bool takes = step.act != Act::kBarrier && (step.act != Act::kGather || is_root);
  for (std::size_t p = 0; p < step.ranks.size() && takes; ++p) {
    const std::int64_t first = step.act == Act::kAlltoall ? place * step.rows : 0;
    const std::string wrong =
        compare(output + p * static_cast<std::size_t>(step.rows) * size_of(step.type), step.type,
                step.rows, first, of_rank(step.ranks[p]));
    if (!wrong.empty()) return fmt::format("from rank {}: {}", step.ranks[p], wrong);
  }
  return {};
}

OperationKind kind_of(Act act) {
  switch (act) {
    case Act::kAllreduce:
      return OperationKind::kAllreduce;
    case Act::kBroadcast:
      return OperationKind::kBroadcast;
    case Act::kAllgather:
      return OperationKind::kAllgather;
    case Act::kAlltoall:
      return OperationKind::kAlltoall;
    case Act::kReduceScatter:
      return OperationKind::kReduceScatter;
    case Act::kBarrier:
      return OperationKind::kBarrier;
    case Act::kGather:
      return OperationKind::kGather;
    case Act::kScatter:
      return OperationKind::kScatter;
    case Act::kMessage:
      break;
  }
  throw std::logic_error("these are not at in-order submission");
}

void call(Act act, const OrderedArguments& a, const ProcessSet& set) {
  switch (act) {
    case Act::kAllreduce:
      return allreduce_ordered(a.input, a.output, a.count, a.type, a.op, set);
    case Act::kBroadcast:
      return broadcast_ordered(a.output, a.count, a.type, a.root, set);
    case Act::kAllgather:
      return allgather_ordered(a.input, a.output, a.count, a.type, set);
    case Act::kAlltoall:
      return alltoall_ordered(a.input, a.output, a.count, a.type, set);
    case Act::kReduceScatter:
      return reducescatter_ordered(a.input, a.output, a.count, a.type, a.op, set);
    case Act::kBarrier:
      return barrier_ordered(set);
    case Act::kGather:
      return gather_ordered(a.input, a.output, a.count, a.type, a.root, set);
    case Act::kScatter:
      return scatter_ordered(a.input, a.output, a.count, a.type, a.root, set);
    case Act::kMessage:
      break;
  }
  throw std::logic_error("these are not at in-order submission");
}

/// Makes the call invalid in a way that only this rank knows.
void spoil(Act act, OrderedArguments& arguments, Dice& dice) {
  // Only the root of a gather gives an output.
  const auto way = act == Act::kGather ? dice.below(2) : dice.below(3);
  if (way == 0) {
    arguments.count = -1;
  } else if (way == 1 && (act == Act::kBroadcast || act == Act::kGather || act == Act::kScatter)) {
    arguments.root = 1000;
  } else if (way == 1 && (act == Act::kAllreduce || act == Act::kReduceScatter)) {
    arguments.type = DataType::kComplex64;
    arguments.op = ReduceOp::kMin;
  } else {
    arguments.count = 1 + dice.below(100'000);
    arguments.output = nullptr;
  }
}

/// Makes an invalid call. Empty if this rank gets the right error, else what is wrong.
std::string refusal_of(Act act, const OrderedArguments& arguments, const ProcessSet& set, int rank,
                       bool blocking) {
  try {
    if (blocking) {
      call(act, arguments, set);
    } else if (const Status status = start_ordered(arguments, nullptr)->wait(); !status.ok()) {
      throw Exception(status.error());
    }
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    const std::string text = error.what();
    return text.find(fmt::format("rank {}", rank)) == std::string::npos ? "no rank in: " + text
                                                                        : "";
  }
  return "a call that cannot be did not fail";
}

}  // namespace

void Caller::refused_ordered() {
  OrderedArguments arguments{.kind = OperationKind::kBroadcast, .count = 1};
  const std::string wrong = refusal_of(Act::kBroadcast, arguments, {}, rank_, dice_.one_in(2));
  if (!wrong.empty()) throw Wrong(wrong);
}

Begun Caller::begin_ordered(const Step& step, bool blocking) {
  const int place = step.place_of(rank_);
  const std::size_t width = size_of(step.type);
  const bool is_root = step.root == rank_;
  const auto [inputs, outputs] = counts_of(step, is_root);
  const Block output(static_cast<std::size_t>(outputs) * width, width, dice_);
  const bool in_place =
      step.act == Act::kBroadcast ||
      ((step.act == Act::kAllreduce || step.act == Act::kAllgather) && dice_.one_in(2));
  const Block apart(in_place ? 0 : static_cast<std::size_t>(inputs) * width, width, dice_);
  const std::int64_t own_part = step.act == Act::kAllgather ? place * step.rows : 0;
  std::byte* const input =
      in_place ? output.data() + static_cast<std::size_t>(own_part) * width : apart.data();
  const auto own = [step, rank = rank_](std::int64_t i) { return input_value(step, rank, i); };
  fill(input, step.type, inputs, 0, own);
  OrderedArguments arguments{.kind = kind_of(step.act),
                             .input = input,
                             .output = output.data(),
                             .count = step.rows,
                             .type = step.type,
                             .op = step.op,
                             .root = step.root,
                             .process_set = set_of(step).id()};
  // A barrier has nothing else that ranks could give differently.
  if (step.act == Act::kBarrier)
    arguments = {.kind = OperationKind::kBarrier, .process_set = arguments.process_set};
  Begun begun{.step = step};
  begun.verify = [=, count = inputs] {
    std::string wrong = wrong_of(step, place, is_root, output.data());
    if (wrong.empty()) wrong = output.damage();
    if (wrong.empty() && !in_place) wrong = compare(apart.data(), step.type, count, 0, own);
    return wrong;
  };
  if (step.odd == Odd::kRefused) {
    spoil(step.act, arguments, dice_);
    begun.verify = [wrong = refusal_of(step.act, arguments, set_of(step), rank_, blocking)] {
      return wrong;
    };
    return begun;
  }
  if (blocking) {
    call(step.act, arguments, set_of(step));
  } else {
    begun.works = {start_ordered(arguments, nullptr)};
  }
  return begun;
}

}  // namespace kolo::test
