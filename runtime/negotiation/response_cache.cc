#include "runtime/negotiation/response_cache.h"

namespace kolo {

std::optional<std::uint32_t> ResponseCache::find(const std::string& name,
                                                 const Signature& signature) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end() || slots_[it->second].signature != signature) return std::nullopt;
  return it->second;
}

void ResponseCache::put(const std::string& name, const Signature& signature) {
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) {
    slots_[it->second].signature = signature;
  } else if (slots_.size() < capacity_) {
    by_name_.emplace(name, size());
    slots_.push_back({name, signature});
  }
}

}  // namespace kolo
