// The splits of all ranks in one table. Its length does not grow with ranks × ranks unless an
// alltoall is uneven. Pure functions; any thread.
//
//   table                  {3}                  {1, 2, 4}                {1, 2, 3, 4}
//   allgather, gather      3 rows from each     rank 1 gives 2 rows
//   scatter                3 rows to each       rank 1 gets 2 rows
//   alltoall of 2 ranks    3 rows from each                              rank 1 sends 3 rows to
//                          to each                                       rank 0, and keeps 4
#pragma once

#include "runtime/base/operation_kind.h"
#include "runtime/submission/entry.h"

#include <span>
#include <vector>

namespace kolo {

/// One number if all are equal; else `splits`.
Splits shortened(const Splits& splits);

/// Preconditions: `by_rank` has shortened splits of each rank that fit the row-wise kind; `root` is
/// the index of a scatter's root.
SplitTable table_of(OperationKind kind, const std::vector<Splits>& by_rank, std::size_t root);

/// The table of an in-order call, whose splits are equal on all ranks; `splits` are this rank's. A
/// scatter has one row for each rank, which its root alone states.
SplitTable table_in_order(OperationKind kind, const Splits& splits);

/// The numbers of `rank` of `ranks`, or one number where they are equal. A scatter's are the root's
/// for every rank. Precondition: the table is not empty.
std::span<const std::int64_t> splits_of(const SplitTable& table, OperationKind kind, int rank,
                                        int ranks);

}  // namespace kolo
