#include "tools/perf/problem.h"

#include <algorithm>

namespace kolo::perf {

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return "allreduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllgather:
      return "allgather";
    case Collective::kAlltoall:
      return "alltoall";
    case Collective::kReducescatter:
      return "reducescatter";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kSendrecv:
      return "sendrecv";
    case Collective::kBarrier:
      return "barrier";
  }
  return "?";
}

std::optional<Collective> collective_of(std::string_view name) {
  for (const Collective collective : kCollectives) {
    if (to_string(collective) == name) return collective;
  }
  return std::nullopt;
}

bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReducescatter;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kGather ||
         collective == Collective::kScatter;
}

bool is_by_parts(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kSendrecv:
    case Collective::kBarrier:
      return false;
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kReducescatter:
    case Collective::kGather:
    case Collective::kScatter:
      return true;
  }
  return false;
}

Problem sized(Problem problem, std::size_t bytes, int ranks) {
  if (problem.collective == Collective::kBarrier) {
    problem.count = 0;
    return problem;
  }
  const auto elements = static_cast<std::int64_t>(bytes / size_of(problem.type));
  problem.count =
      std::max<std::int64_t>(1, is_by_parts(problem.collective) ? elements / ranks : elements);
  return problem;
}

std::size_t bytes_of(const Problem& problem, int ranks) {
  const std::int64_t parts = is_by_parts(problem.collective) ? ranks : 1;
  return static_cast<std::size_t>(problem.count * parts) * size_of(problem.type);
}

std::int64_t input_count(const Problem& problem, int rank, int ranks) {
  switch (problem.collective) {
    case Collective::kAllreduce:
    case Collective::kSendrecv:
    case Collective::kAllgather:
    case Collective::kGather:
      return problem.count;
    case Collective::kBroadcast:
      return rank == problem.root ? problem.count : 0;
    case Collective::kAlltoall:
    case Collective::kReducescatter:
      return problem.count * ranks;
    case Collective::kScatter:
      return rank == problem.root ? problem.count * ranks : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

std::int64_t output_count(const Problem& problem, int rank, int ranks) {
  switch (problem.collective) {
    case Collective::kAllreduce:
    case Collective::kSendrecv:
    case Collective::kBroadcast:
    case Collective::kReducescatter:
    case Collective::kScatter:
      return problem.count;
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return problem.count * ranks;
    case Collective::kGather:
      return rank == problem.root ? problem.count * ranks : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

std::optional<std::int64_t> place_in_output(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
      return 0;
    case Collective::kAllgather:
      return rank * problem.count;
    case Collective::kAlltoall:
    case Collective::kReducescatter:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSendrecv:
    case Collective::kBarrier:
      return std::nullopt;
  }
  return std::nullopt;
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllreduce:
      return 2 * others;
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kReducescatter:
    case Collective::kGather:
    case Collective::kScatter:
      return others;
    case Collective::kBroadcast:
    case Collective::kSendrecv:
    case Collective::kBarrier:
      return 1;
  }
  return 1;
}

}  // namespace kolo::perf
