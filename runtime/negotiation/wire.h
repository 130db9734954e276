// Requests and responses, and their encoding (protobuf, see wire.proto). Pure functions; decoding
// refuses malformed bytes.
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
  Splits splits = {};
  std::string complaint = {};  ///< as Entry::complaint
  std::uint64_t step = 0;      ///< as Entry::step
};

/// "All ranks are ready for this tensor: do it", or why it fails on all of them.
struct Response {
  std::string name;
  Signature signature;
  int contributors = 0;  ///< ranks that are not absent; 0: nothing to do
  std::optional<Error> error = std::nullopt;
  int participants = 0;    ///< ranks that have not joined: what an average divides by
  SplitTable splits = {};  ///< of a row-wise kind: all ranks'
  /// Of a join the rank that came last; where ranks were at different steps, the highest.
  std::int64_t result = 0;
  /// Ranks of the communicator that had not announced it: it has failed, or they have joined. What
  /// such a rank submits, or has on its way to rank 0, is for the next time.
  std::vector<int> missing = {};

  /// Whether a schedule is to be run for it.
  bool runs() const { return !error && contributors > 0 && moves_data(signature.kind); }
};

/// As many of the first as fit into one control message, at least one; `list` is left with the
/// rest.
std::string encode_first(std::span<const Request>& list);
std::string encode_first(std::span<const Response>& list);
/// What it adds to a list.
std::size_t encoded_bytes(const Response& response);
/// kInternal on bytes that are no such list.
Result<std::vector<Request>> decode_requests(std::span<const std::byte> bytes);
Result<std::vector<Response>> decode_responses(std::span<const std::byte> bytes);

}  // namespace kolo
