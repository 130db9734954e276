// A problem is what kolo-perf measures: one collective on one amount of memory. Plain values,
// shared by the sweep, the patterns that verify and the engines that run it; words and factors also
// by kolo-simulate. Any thread.
#pragma once

#include <kolo/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kolo::perf {

enum class Collective {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReducescatter,
  kGather,
  kScatter,
  kSendrecv,  ///< every rank sends to the next rank and receives from the previous one
  kBarrier,
};
inline constexpr std::array kCollectives = {
    Collective::kAllreduce, Collective::kBroadcast,     Collective::kAllgather,
    Collective::kAlltoall,  Collective::kReducescatter, Collective::kGather,
    Collective::kScatter,   Collective::kSendrecv,      Collective::kBarrier};

/// "allreduce", "broadcast", …
std::string_view to_string(Collective collective);
std::optional<Collective> collective_of(std::string_view name);

/// "float32", …: all that kolo has.
inline std::map<std::string, DataType> types_by_name() {
  std::map<std::string, DataType> types;
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    types.emplace(to_string(type), type);
  }
  return types;
}

struct Problem {
  Collective collective = Collective::kAllreduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  ///< for all-reduce and reduce-scatter
  int root = 0;                  ///< for broadcast, gather and scatter
  /// Number of elements in nccl-tests' sense: the whole buffer for allreduce, broadcast and
  /// sendrecv, one rank's part for the others, 0 for the barrier.
  std::int64_t count = 0;
};

bool reduces(Collective collective);
bool has_root(Collective collective);
/// Whether the count is that of one rank's part.
bool is_by_parts(Collective collective);

/// The problem whose larger buffer has `bytes`, or a little less if they do not divide; at least
/// one element per rank.
Problem sized(Problem problem, std::size_t bytes, int ranks);
/// Bytes of the larger of the two buffers: nccl-tests' column "size".
std::size_t bytes_of(const Problem& problem, int ranks);

/// Number of elements of a rank's input and output; 0 if there is none, as for a gather's output
/// off the root.
std::int64_t input_count(const Problem& problem, int rank, int ranks);
std::int64_t output_count(const Problem& problem, int rank, int ranks);

/// The element of the output where the input lies in the in-place form; nothing if there is no such
/// form. Broadcast is always in place.
std::optional<std::int64_t> place_in_output(const Problem& problem, int rank);

/// nccl-tests' factor from algorithm bandwidth to bus bandwidth (see its doc/PERFORMANCE.md).
double bus_factor(Collective collective, int ranks);

}  // namespace kolo::perf
