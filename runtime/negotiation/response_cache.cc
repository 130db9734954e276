// Slots of the response cache and their names. Progress token holder only.
#include "runtime/negotiation/response_cache.h"

#include "runtime/submission/split_table.h"
#include "runtime/submission/unnamed.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Longer tables are not remembered: 256 ranks' uneven alltoall, or 65,536 ranks' allgather.
constexpr std::size_t kLongestTable = 1 << 16;

/// Whether a rank's call fits a remembered response of its signature.
bool matches(const Response& known, const Splits& splits, int rank, int ranks) {
  const OperationKind kind = known.signature.kind;
  if (!is_row_wise(kind)) return true;
  if (known.splits.empty()) return false;
  if (splits.empty()) return true;  // a scatter's root alone has splits
  const auto remembered = splits_of(known.splits, kind, rank, ranks);
  if (remembered.size() > 1)
    return std::equal(splits.begin(), splits.end(), remembered.begin(), remembered.end());
  return std::all_of(splits.begin(), splits.end(),
                     [&](std::int64_t rows) { return rows == remembered.front(); });
}

/// Whether a name deserves a slot of the response cache, which it keeps. Names that kolo makes up
/// for these kinds come once.
bool comes_again(OperationKind kind) {
  return kind != OperationKind::kJoin && kind != OperationKind::kAddProcessSet &&
         kind != OperationKind::kRemoveProcessSet;
}

}  // namespace

std::optional<std::uint32_t> ResponseCache::find(const std::string& name,
                                                 const Signature& signature, const Splits& splits,
                                                 int rank) const {
  const auto slot = find(name);
  if (!slot) return std::nullopt;
  const Response& known = *slots_[*slot];
  if (known.signature != signature || !matches(known, splits, rank, ranks_)) return std::nullopt;
  return slot;
}

std::optional<std::uint32_t> ResponseCache::find(const Response& response) const {
  const auto slot = find(response.name);
  if (!slot) return std::nullopt;
  const Response& known = *slots_[*slot];
  if (known.signature != response.signature || known.splits != response.splits) return std::nullopt;
  return slot;
}

std::optional<std::uint32_t> ResponseCache::find(const std::string& name) const {
  if (expected_ < slots_.size() && slots_[expected_]->name == name) return expected_++;
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return std::nullopt;
  expected_ = it->second + 1;
  return it->second;
}

void ResponseCache::put(const Response& response) {
  if (!comes_again(response.signature.kind)) return;
  const bool is_too_long = response.splits.size() > kLongestTable;
  const auto it = by_name_.find(response.name);
  if (it != by_name_.end()) {
    slots_[it->second] =
        made(response.name, response.signature, is_too_long ? SplitTable() : response.splits);
    return;
  }
  if (is_too_long) return;
  add(response.name, response.signature, response.splits);
  const auto parts = parts_of_unnamed(response.name);
  // Uneven splits are likely to be others under the next name.
  if (!parts || response.splits.size() > 1) return;
  const auto group = parts_of_unnamed(response.signature.group);
  for (std::uint64_t n = 0; n < kUnnamedNames; ++n) {
    std::string name = unnamed_name(parts->base, n) + std::string(parts->suffix);
    if (by_name_.contains(name)) continue;
    Signature signature = response.signature;
    if (group) signature.group = unnamed_name(group->base, n);
    add(std::move(name), std::move(signature), response.splits);
  }
}

std::shared_ptr<const Response> ResponseCache::made(std::string name, Signature signature,
                                                    SplitTable splits) const {
  Response response{std::move(name), std::move(signature), ranks_};
  response.participants = ranks_;
  response.splits = std::move(splits);
  return std::make_shared<const Response>(std::move(response));
}

void ResponseCache::add(std::string name, Signature signature, SplitTable splits) {
  if (slots_.size() >= capacity_) return;
  by_name_.emplace(name, size());
  slots_.push_back(made(std::move(name), std::move(signature), std::move(splits)));
}

}  // namespace kolo
