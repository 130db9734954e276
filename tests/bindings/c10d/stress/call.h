// A call of a random program of process groups. All ranks of a group draw the same call. Pure.
#pragma once

#include "tests/support/dice.h"

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::test {

enum class Kind : std::uint8_t {
  kBroadcast,
  kAllreduce,
  kAllreduceCoalesced,
  kReduce,
  kAllgather,
  kAllgatherBase,
  kAllgatherCoalesced,
  kGather,
  kGatherSingle,
  kScatter,
  kReduceScatter,
  kReduceScatterBase,
  kReduceScatterCoalesced,
  kAlltoallBase,
  kAlltoall,
  kMessage,
  kBarrier,
  kOrdered,  ///< in-order submission by <kolo/kolo.h>
  kNamed,    ///< negotiated submission by <kolo/torch.h>
  kRefused,  ///< on all ranks
};
inline constexpr int kKindCount = 20;

using Op = c10d::ReduceOp::RedOpType;
using Sizes = std::vector<std::int64_t>;

/// A rank's input; if the call has parts for each rank, one of these.
struct Part {
  torch::ScalarType type = torch::kFloat32;
  Sizes sizes;

  std::int64_t count() const { return c10::multiply_integers(sizes); }
};

struct Call {
  Kind kind = Kind::kBarrier;
  Op op = Op::SUM;
  std::vector<Part>
      parts;  ///< several if coalesced; the first extent of uneven parts is drawn below
  /// Rows from rank [r] to rank [d]. If all ranks, or one, get the same rows: [r][0].
  std::vector<Sizes> rows;
  int root = 0;  ///< rank of the group, as all ranks here; the sender of a message
  int to = 0;
  int tag = 0;
  int way = 0;  ///< variant of the kind
  std::uint64_t salt = 0;

  /// The part that goes from one rank to another, with its rows.
  Part part(int from, int to) const;
  std::string text() const;
};

/// Draws a call for a group of `size` ranks.
Call draw_call(Dice& dice, int size);

/// Values so small that all operations are exact: flat, of float64 or complex128.
torch::Tensor values_of(const Call& call, std::size_t part, int rank, std::int64_t count);
/// The factor by which rank `rank` multiplies its values.
double factor_of(const Call& call, int rank);
/// The reduction of the inputs of all `size` ranks.
torch::Tensor reduced_values(const Call& call, std::size_t part, int size, std::int64_t count);

}  // namespace kolo::test
