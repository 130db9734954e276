// How the rows of an operation lie in each rank's input and output, once all ranks' splits are
// known. Pure functions of what all ranks share; called by whoever plans and runs an operation.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/submission/entry.h"

#include <cstdint>
#include <vector>

namespace kolo {

struct RowLayout {
  /// In elements, as a ScheduleRequest wants them: by rank, of an alltoall [from × size + to];
  /// empty where every rank has the same.
  std::vector<std::uint64_t> counts;
  std::uint64_t input_elements = 0;   ///< of this rank
  std::uint64_t output_elements = 0;  ///< of this rank
  /// Where this rank's own part begins: in the output (allgather, gather), in the root's input
  /// (scatter).
  std::uint64_t own_offset = 0;
  Shape output_shape;
  /// Rows of the output by the rank that they came from (allgather, gather at the root, alltoall).
  Splits received;
};

/// Precondition: `table` has a row for each rank where the kind is row-wise, as a coordinator that
/// has decided leaves it.
RowLayout layout_of(const Signature& signature, const SplitTable& table,
                    const Communicator& communicator);

/// Rows of a first dimension of `rows` that `rank` gets of a reduce-scatter: as even as can be, the
/// first ranks one more.
std::int64_t even_share(std::int64_t rows, int rank, int size);

}  // namespace kolo
