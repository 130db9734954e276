// Slots of the response cache and their names. Progress token holder only.
#include "runtime/negotiation/response_cache.h"

#include "runtime/submission/unnamed.h"

#include <utility>

namespace kolo {
namespace {

bool matches(const SplitTable& table, int rank, const Splits& splits) {
  return table.empty() ? splits.empty() : table[static_cast<std::size_t>(rank)] == splits;
}

}  // namespace

std::optional<std::uint32_t> ResponseCache::find(const std::string& name,
                                                 const Signature& signature, const Splits& splits,
                                                 int rank) const {
  const auto slot = find(name);
  if (!slot) return std::nullopt;
  const Response& known = *slots_[*slot];
  if (known.signature != signature || !matches(known.splits, rank, splits)) return std::nullopt;
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
  const auto it = by_name_.find(response.name);
  if (it != by_name_.end()) {
    slots_[it->second] = made(response.name, response.signature, response.splits);
    return;
  }
  add(response.name, response.signature, response.splits);
  const auto parts = parts_of_unnamed(response.name);
  if (!parts) return;
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
