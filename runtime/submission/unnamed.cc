// Makes and parses the names of unnamed operations. Pure; called by the tensor table and the
// response cache.
#include "runtime/submission/unnamed.h"

#include "runtime/base/fnv.h"

#include <fmt/format.h>

#include <algorithm>

namespace kolo {
namespace {

constexpr std::string_view kMark = ".unnamed[";

std::string after(std::uint64_t failed) {
  return failed == 0 ? std::string() : fmt::format("after {} failed: ", failed);
}

}  // namespace

std::string unnamed_base(const Signature& signature, std::uint64_t failed) {
  std::string base = fmt::format("{}{}{}{} {}", to_string(signature.kind), kMark, after(failed),
                                 to_string(signature.type), to_string(signature.shape));
  const bool reduces = signature.kind == OperationKind::kAllreduce ||
                       signature.kind == OperationKind::kReduceScatter;
  if (reduces) base += fmt::format(" {}", to_string(signature.op));
  if (signature.prescale != 1.0) base += fmt::format(" prescale {}", signature.prescale);
  if (signature.postscale != 1.0) base += fmt::format(" postscale {}", signature.postscale);
  if (signature.root != 0) base += fmt::format(" root {}", signature.root);
  return base + "]";
}

std::string unnamed_base(OperationKind kind) {
  return fmt::format("{}{}by order]", to_string(kind), kMark);
}

std::string unnamed_group_base(const std::vector<Signature>& members, std::uint64_t failed) {
  // Members may be many and their names long, so their names are hashed.
  std::uint64_t hash = fnv1a("");
  for (const Signature& member : members) hash = fnv1a(unnamed_base(member, 0), hash);
  return fmt::format("group{}{}{} of {:016x}]", kMark, after(failed), members.size(), hash);
}

std::string unnamed_name(std::string_view base, std::uint64_t n) {
  return fmt::format("{}.{}", base, n % kUnnamedNames);
}

std::optional<UnnamedParts> parts_of_unnamed(std::string_view name) {
  const std::size_t end = name.rfind("].");
  if (end == std::string_view::npos || name.find(kMark) > end) return std::nullopt;
  const std::size_t suffix = std::min(name.find_first_not_of("0123456789", end + 2), name.size());
  return UnnamedParts{name.substr(0, end + 1), name.substr(suffix)};
}

}  // namespace kolo
