// Where the rows of an operation lie in each rank's input and output, once all ranks' splits are
// known. Pure functions of values that all ranks have. Called by the code that plans and runs
// operations.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/submission/entry.h"

#include <cstdint>
#include <vector>

namespace kolo {

struct RowLayout {
  /// Elements, as in ScheduleRequest::counts. Empty if all ranks have equally many.
  std::vector<std::uint64_t> counts;
  std::uint64_t input_elements = 0;   ///< on this rank
  std::uint64_t output_elements = 0;  ///< on this rank
  /// Where this rank's own part begins: in the output (allgather, gather), in the root's input
  /// (scatter), in its own input (reduce-scatter).
  std::uint64_t own_offset = 0;
  Shape output_shape;
  /// Rows of the output by the rank that sent them (allgather, gather at the root, alltoall).
  Splits received;
};

/// Precondition: for a row-wise kind, `table` is that of a response without error.
RowLayout layout_of(const Signature& signature, const SplitTable& table,
                    const Communicator& communicator);

/// Rows of a first dimension of `rows` that `rank` gets in a reduce-scatter. The shares are as even
/// as possible; the first ranks get one row more.
std::int64_t even_share(std::int64_t rows, int rank, int size);

}  // namespace kolo
