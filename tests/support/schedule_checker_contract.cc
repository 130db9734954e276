// The memory contents that each collective requires, independent of the algorithm; and the barrier,
// which has no memory. Called by the schedule checker.
#include "tests/support/schedule_checker_parts.h"

namespace kolo::test {
namespace {

using Stretch = Contract::Stretch;

std::uint64_t sum(std::span<const std::uint64_t> counts) {
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts) total += count;
  return total;
}

/// Number of elements before part `rank`.
std::uint64_t before(std::span<const std::uint64_t> counts, int rank) {
  return sum(counts.first(static_cast<std::size_t>(rank)));
}

std::vector<Stretch> all_parts(std::span<const std::uint64_t> counts) {
  std::vector<Stretch> parts;
  for (std::size_t r = 0; r < counts.size(); ++r)
    parts.push_back({static_cast<int>(r), 0, counts[r]});
  return parts;
}

Contract::Rank alltoall(std::span<const std::uint64_t> matrix, std::size_t size, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  Contract::Rank memory{.input_elements = sum(matrix.subspan(own * size, size))};
  for (std::size_t from = 0; from < size; ++from) {
    const auto row = matrix.subspan(from * size, size);
    memory.output.push_back({static_cast<int>(from), before(row, rank), row[own]});
    memory.output_elements += row[own];
  }
  return memory;
}

Contract::Rank of_rank(int rank, std::size_t size, std::uint64_t count,
                       const CheckOptions& options) {
  const std::span<const std::uint64_t> counts = options.counts;
  const auto own = [&] { return counts[static_cast<std::size_t>(rank)]; };
  const bool is_root = rank == options.root;
  switch (options.kind) {
    case OperationKind::kAllreduce:
      return {.input_elements = count,
              .output_elements = count,
              .output = {{Contract::kAllRanks, 0, count}}};
    case OperationKind::kBroadcast:
      return {
          .input_elements = count, .output_elements = count, .output = {{options.root, 0, count}}};
    case OperationKind::kAllgather:
      return {.input_elements = own(),
              .output_elements = sum(counts),
              .input_begin = before(counts, rank),
              .output = all_parts(counts)};
    case OperationKind::kAlltoall:
      KOLO_CHECK(!options.input_is_output);
      return alltoall(counts, size, rank);
    case OperationKind::kReduceScatter:
      return {.input_elements = sum(counts),
              .output_elements = own(),
              .output_begin = before(counts, rank),
              .output = {{Contract::kAllRanks, before(counts, rank), own()}}};
    case OperationKind::kGather:
      if (!is_root) return {.input_elements = own()};
      return {.input_elements = own(),
              .output_elements = sum(counts),
              .input_begin = before(counts, rank),
              .output = all_parts(counts)};
    case OperationKind::kScatter:
      return {.input_elements = is_root ? sum(counts) : 0,
              .output_elements = own(),
              .output_begin = is_root ? before(counts, rank) : 0,
              .output = {{options.root, before(counts, rank), own()}}};
    case OperationKind::kBarrier:
      return {};
    case OperationKind::kSend: {
      Contract::Rank memory{.input_elements = is_root ? count : 0};
      if (rank != options.peer) return memory;
      memory.output_elements = count;
      memory.output = {{options.root, 0, count}};
      return memory;
    }
    case OperationKind::kReceive:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
      break;
  }
  KOLO_CHECK(false);
  return {};
}

}  // namespace

Contract contract_of(std::span<const Schedule> schedules, const CheckOptions& options) {
  Contract contract{.options = options, .ranks = {}};
  const std::uint64_t count = schedules[static_cast<std::size_t>(options.root)].input_elements;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank)
    contract.ranks.push_back(of_rank(rank, schedules.size(), count, options));
  return contract;
}

// A rank knows that another one has begun when it has received from it, or from a rank that knew it
// when it sent. A finished send proves nothing: it may lie in a buffer.
Status check_barrier(std::span<const Schedule> schedules, const Partners& partners,
                     std::span<const GlobalStep> finish_order) {
  using RankSet = std::vector<bool>;
  const auto merge = [](RankSet& set, const RankSet& other) {
    for (std::size_t i = 0; i < set.size(); ++i)
      if (other[i]) set[i] = true;
  };
  // By rank and step: the ranks that are known to have begun when the step begins, and when it is
  // done.
  std::vector<std::vector<RankSet>> at_begin(schedules.size()), at_end(schedules.size());
  std::vector<RankSet> at_exit(schedules.size());
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    at_begin[r].resize(schedules[r].steps.size());
    at_end[r].resize(schedules[r].steps.size());
    at_exit[r].resize(schedules.size());
    at_exit[r][r] = true;
  }
  for (const GlobalStep id : finish_order) {
    const auto r = static_cast<std::size_t>(id.rank);
    const Step& step = schedules[r].steps[id.step];
    RankSet known(schedules.size());
    known[r] = true;
    for (const StepId dependency : schedules[r].depends_on(step))
      merge(known, at_end[r][dependency]);
    at_begin[r][id.step] = known;
    if (is_message(step.kind) && !is_outgoing(step.kind)) {
      const GlobalStep other = partners[r][id.step];
      merge(known, at_begin[static_cast<std::size_t>(other.rank)][other.step]);
    }
    at_end[r][id.step] = known;
    merge(at_exit[r], known);
  }
  for (std::size_t r = 0; r < schedules.size(); ++r)
    for (std::size_t other = 0; other < schedules.size(); ++other)
      if (!at_exit[r][other])
        return KOLO_ERROR(kInternal, "rank {} leaves the barrier before rank {} has surely come", r,
                          other);
  return {};
}

}  // namespace kolo::test
