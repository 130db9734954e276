// The ordered door's calls of a random program. One thread for each process set.
#include "tests/bindings/core/stress/calls.h"
#include "tests/bindings/core/stress/values.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kolo::test {
namespace {

bool is_in_parts(Act act) { return act == Act::kAlltoall || act == Act::kReduceScatter; }

/// Elements of the input, and of the output.
std::pair<std::int64_t, std::int64_t> counts_of(const Step& step) {
  const std::int64_t whole = step.rows * step.size();
  if (step.act == Act::kBarrier) return {0, 0};
  return {is_in_parts(step.act) ? whole : step.rows,
          step.act == Act::kAllgather || step.act == Act::kAlltoall ? whole : step.rows};
}

std::string wrong_of(const Step& step, int place, const std::byte* output) {
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
  for (std::size_t p = 0; p < step.ranks.size() && step.act != Act::kBarrier; ++p) {
    const std::int64_t first = step.act == Act::kAlltoall ? place * step.rows : 0;
    const std::string wrong =
        compare(output + p * static_cast<std::size_t>(step.rows) * size_of(step.type), step.type,
                step.rows, first, of_rank(step.ranks[p]));
    if (!wrong.empty()) return fmt::format("from rank {}: {}", step.ranks[p], wrong);
  }
  return {};
}

}  // namespace

void Caller::call_ordered(const Step& step) {
  const ProcessSet set = set_of(step);
  const int place = step.place_of(rank_);
  const std::size_t width = size_of(step.type);
  const auto [inputs, outputs] = counts_of(step);
  const Block output(static_cast<std::size_t>(outputs) * width, width, dice_);
  const bool in_place =
      step.act == Act::kBroadcast ||
      ((step.act == Act::kAllreduce || step.act == Act::kAllgather) && dice_.one_in(2));
  const Block apart(in_place ? 0 : static_cast<std::size_t>(inputs) * width, width, dice_);
  const std::int64_t own_part = step.act == Act::kAllgather ? place * step.rows : 0;
  std::byte* const input =
      in_place ? output.data() + static_cast<std::size_t>(own_part) * width : apart.data();
  const auto own = [&](std::int64_t i) { return input_value(step, rank_, i); };
  fill(input, step.type, inputs, 0, own);
  switch (step.act) {
    case Act::kAllreduce:
      allreduce_ordered(input, output.data(), step.rows, step.type, step.op, set);
      break;
    case Act::kBroadcast:
      broadcast_ordered(output.data(), step.rows, step.type, step.root, set);
      break;
    case Act::kAllgather:
      allgather_ordered(input, output.data(), step.rows, step.type, set);
      break;
    case Act::kAlltoall:
      alltoall_ordered(input, output.data(), step.rows, step.type, set);
      break;
    case Act::kReduceScatter:
      reducescatter_ordered(input, output.data(), step.rows, step.type, step.op, set);
      break;
    case Act::kBarrier:
      barrier_ordered(set);
      break;
    case Act::kGather:
    case Act::kScatter:
    case Act::kMessage:
      throw std::logic_error("these are not at the ordered door");
  }
  std::string wrong = wrong_of(step, place, output.data());
  if (wrong.empty()) wrong = output.damage();
  if (wrong.empty() && !in_place) wrong = compare(input, step.type, inputs, 0, own);
  if (!wrong.empty()) {
    throw Wrong(fmt::format("ordered call (act {}, {} {}, {} elements) of ranks {}: {}",
                            static_cast<int>(step.act), to_string(step.op), to_string(step.type),
                            step.rows, fmt::join(step.ranks, " "), wrong));
  }
}

}  // namespace kolo::test
