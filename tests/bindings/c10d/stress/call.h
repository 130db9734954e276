// A call of a random program of process groups, which all ranks of a group draw alike. Pure.
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
  kOrdered,  ///< of <kolo/kolo.h>, in the group's order
  kNamed,    ///< of <kolo/torch.h>
  kRefused,  ///< on all ranks alike
};
inline constexpr int kKindCount = 20;

using Op = c10d::ReduceOp::RedOpType;
using Sizes = std::vector<std::int64_t>;

/// What a rank puts in; where calls have parts for each rank, one of these.
struct Part {
  torch::ScalarType type = torch::kFloat32;
  Sizes sizes;

  std::int64_t count() const { return c10::multiply_integers(sizes); }
};

struct Call {
  Kind kind = Kind::kBarrier;
  Op op = Op::SUM;
  std::vector<Part>
      parts;  ///< several if coalesced; of uneven ones the first extent is drawn below
  /// Rows from rank [r] to rank [d]; where all get, or one gets, the same: [r][0].
  std::vector<Sizes> rows;
  int root = 0;  ///< of the group, as all ranks here; of a message, the sender
  int to = 0;
  int tag = 0;
  int way = 0;  ///< among those of the kind
  std::uint64_t salt = 0;

  /// The part that goes from one rank to another, of its rows.
  Part part(int from, int to) const;
  std::string text() const;
};

/// Of a group of so many ranks.
Call draw_call(Dice& dice, int size);

/// Small enough that all operations are exact: flat, of float64 or complex128.
torch::Tensor values_of(const Call& call, std::size_t part, int rank, std::int64_t count);
/// What rank `rank` multiplies its values by.
double factor_of(const Call& call, int rank);
/// Of what all `size` ranks put in.
torch::Tensor reduced_values(const Call& call, std::size_t part, int size, std::int64_t count);

}  // namespace kolo::test
