// Requests and responses, and their encoding (protobuf, see wire.proto). Pure functions; decoding
// rejects malformed bytes.
#pragma once

#include "runtime/submission/entry.h"

#include <kolo/error.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// "This rank is ready for this tensor."
struct Request {
  std::string name;
  Signature signature;
  bool absent = false;
  Splits splits = {};          ///< Entry::splits, one number if all are equal
  std::string complaint = {};  ///< see Entry::complaint
  std::uint64_t step = 0;      ///< see Entry::step
  int rank = 0;                ///< whose request it is, in the communicator
  /// For a join: how many calls by some ranks alone this rank has announced before.
  std::uint64_t after = 0;
};

/// "All ranks are ready for this tensor: run it", or why it fails on all of them.
struct Response {
  std::string name;
  Signature signature;
  int contributors = 0;  ///< ranks that are not absent; 0: nothing to run
  std::optional<Error> error = std::nullopt;
  int participants = 0;  ///< ranks that have not joined: the divisor of an average
  SplitTable splits = {};
  /// For a join: the last rank to join. For ranks at different steps: the highest step.
  std::int64_t result = 0;
  /// Ranks of the communicator that had not announced this call: it has failed, they have joined,
  /// or it was not theirs to announce (is_by_its_ranks()). Any announcement of theirs that is still
  /// under way, or comes later, is for the next call.
  std::vector<int> missing = {};

  /// Whether a schedule is to be run for it.
  bool runs() const { return !error && contributors > 0 && moves_data(signature.kind); }
};

/// A list is cut at this length, unless one item is longer; far below Transport::kLargestMessage.
constexpr std::size_t kLongestList = 512 << 10;
/// Encodes as many of the first items as fit into one control message, at least one. Leaves the
/// rest in `list`. Encoded lists that are put together are one list.
std::string encode_first(std::span<const Request>& list);
std::string encode_first(std::span<const Response>& list);
/// Bytes that the response adds to a list.
std::size_t encoded_bytes(const Response& response);
/// kInternal if the bytes are malformed.
Result<std::vector<Request>> decode_requests(std::span<const std::byte> bytes);
Result<std::vector<Response>> decode_responses(std::span<const std::byte> bytes);

}  // namespace kolo
