// ResponseCache: names whose negotiation is remembered. Every rank feeds it the same responses in
// the same order, so a slot means the same tensor everywhere and one bit replaces a request. Slots
// are never given to another name; when all are taken, further names are negotiated in full. Token
// holder only. (After Horovod's response cache, without its eviction.)
#pragma once

#include "runtime/submission/entry.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

namespace kolo {

class ResponseCache {
 public:
  struct Slot {
    std::string name;
    Signature signature;
  };

  explicit ResponseCache(std::uint32_t capacity) : capacity_(capacity) {}

  /// The slot of a name, if it has one and was last agreed with this signature.
  std::optional<std::uint32_t> find(const std::string& name, const Signature& signature) const;

  /// Remembers an agreed response; a name that is known gets its new signature.
  void put(const std::string& name, const Signature& signature);

  /// Precondition: slot < size().
  const Slot& at(std::uint32_t slot) const { return slots_[slot]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

 private:
  const std::uint32_t capacity_;
  std::deque<Slot> slots_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
};

}  // namespace kolo
