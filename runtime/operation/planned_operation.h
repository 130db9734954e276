// PlannedOperation: an operation that every rank starts in the same order, under the same number.
// Made by the cycle when ranks have agreed, or when an in-order call gets its number. Held by the
// Operation that runs it. Token holder only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/device/partial_sums.h"
#include "runtime/exchange/exchange.h"
#include "runtime/planning/route.h"
#include "runtime/submission/entry.h"
#include "runtime/submission/row_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

struct PlannedOperation {
  SubmissionMode mode = SubmissionMode::kNegotiated;
  std::uint64_t sequence = 0;
  std::vector<EntryPtr> entries;  ///< more than one: fused
  std::vector<int> contributors;  ///< by entry
  int participants = 0;           ///< divisor of an average
  RowLayout layout = {};          ///< only for an operation that is not fused
  bool meets_first = false;       ///< all ranks meet before any sends
  std::uint64_t before = 0;       ///< CallHistory::bits() of an in-order call
  std::uint64_t record = 0;       ///< in the flight recorder; 0: none

  const Entry& first() const { return *entries.front(); }
  const Signature& signature() const { return entries.front()->signature; }
  /// Factors of inputs and of results, including an average's divisor.
  Scales scales() const;
  /// All-reduces and broadcasts: input and output have the entry's whole shape.
  bool is_whole() const;
  /// Bytes of an entry's input and output on this rank.
  std::size_t input_bytes(const Entry& entry) const;
  std::size_t output_bytes(const Entry& entry) const;
  /// Whether this rank's part of a row-wise operation lies where its result belongs.
  bool lies_in_place(const Communicator& communicator) const;
  /// "allreduce 'fc1.weight' and 12 more of process set 2".
  std::string describe(const Communicator& communicator) const;
};

/// The arguments for route().
CallShape shape_of(const PlannedOperation& plan, const Communicator& communicator);
/// The call as a request to the exchange; nothing if it is not an in-order collective.
std::optional<Exchange::Request> exchange_of(const PlannedOperation& plan,
                                             const Communicator& communicator);
/// Bytes of an in-order call with a root that may wait at one rank, if that one comes late and the
/// call goes by messages.
std::uint64_t bytes_ahead(const PlannedOperation& plan, const Communicator& communicator);
/// OrderedCall::fingerprint and Tag::call of an in-order call; 0 for other operations.
std::uint64_t call_of(const PlannedOperation& plan, const Communicator& communicator);

}  // namespace kolo
