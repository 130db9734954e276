// The names of operations that their caller gave none. The n-th unnamed call with one signature is
// the same operation on every rank, so its name counts per signature; the count wraps, so that
// names recur and their negotiation is remembered like that of others. Pure functions; any thread.
//
// Horovod's unnamed operations get a new name each and are never cached.
#pragma once

#include "runtime/submission/entry.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Names of one signature. A call that would need a name which is still in flight waits for it in
/// the tensor table.
inline constexpr std::uint64_t kUnnamedNames = 16;

/// "allreduce.unnamed[float32 [3, 4] sum]": one for each signature.
std::string unnamed_base(const Signature& signature);
/// The same for a group of operations.
std::string unnamed_group_base(const std::vector<Signature>& members);
/// The name of the n-th call.
std::string unnamed_name(std::string_view base, std::uint64_t n);
/// What unnamed_name() made a name of, and what was appended (a member's place in its group).
struct UnnamedParts {
  std::string_view base;
  std::string_view suffix;
};
/// Nothing of a name that unnamed_name() did not make.
std::optional<UnnamedParts> parts_of_unnamed(std::string_view name);

}  // namespace kolo
