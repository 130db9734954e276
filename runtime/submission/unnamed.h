// The names of operations that the caller did not name. The n-th unnamed call with a signature is
// the same operation on every rank, so names are counted per signature. Callers that keep an order
// among all calls of a kind have them counted per kind (Submission::by_order): then calls that
// differ in type or root meet, and fail. The count wraps, so that names recur and their negotiation
// is cached. Pure functions; any thread.
//
// In Horovod each unnamed operation gets a new name and is never cached.
#pragma once

#include "runtime/submission/entry.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Number of names for one signature. A call whose name is still in flight waits in the tensor
/// table.
inline constexpr std::uint64_t kUnnamedNames = 16;

/// "allreduce.unnamed[float32 [3, 4] sum]": one base for each signature, and for each number of
/// unnamed calls of the kind that have failed on this rank before it could announce them.
std::string unnamed_base(const Signature& signature, std::uint64_t failed);
/// "gather.unnamed[by order]": one base for all calls of a kind that have Submission::by_order.
std::string unnamed_base(OperationKind kind);
/// The base name of a group of operations.
std::string unnamed_group_base(const std::vector<Signature>& members, std::uint64_t failed);
/// The name of the n-th call.
std::string unnamed_name(std::string_view base, std::uint64_t n);
/// The base of a name, and the suffix that was appended (a member's index in its group).
struct UnnamedParts {
  std::string_view base;
  std::string_view suffix;
};
/// Nothing if unnamed_name() did not make the name.
std::optional<UnnamedParts> parts_of_unnamed(std::string_view name);

}  // namespace kolo
