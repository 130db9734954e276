// ResponseCache: names whose negotiation is remembered. Every rank feeds it the same responses in
// the same order, so a slot means the same tensor everywhere and one bit replaces a request. Slots
// are never given to another name; when all are taken, further names are negotiated in full. Token
// holder only. (After Horovod's response cache, without its eviction.)
#pragma once

#include "runtime/negotiation/wire.h"

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
    SplitTable splits;  ///< what each rank had when it was last agreed on
  };

  explicit ResponseCache(std::uint32_t capacity) : capacity_(capacity) {}

  /// The slot of a name, if it has one and was last agreed with this signature, and these splits of
  /// `rank`.
  std::optional<std::uint32_t> find(const std::string& name, const Signature& signature,
                                    const Splits& splits, int rank) const;
  /// The slot of a response that is the remembered one in all that it says.
  std::optional<std::uint32_t> find(const Response& response) const;

  /// Remembers an agreed response; a name that is known gets its new signature and splits. Of an
  /// unnamed operation all names of that signature get a slot at once.
  void put(const Response& response);

  /// Precondition: slot < size().
  const Slot& at(std::uint32_t slot) const { return slots_[slot]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

 private:
  void add(std::string name, Signature signature, SplitTable splits);

  const std::uint32_t capacity_;
  std::deque<Slot> slots_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
};

}  // namespace kolo
