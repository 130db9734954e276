// ResponseCache: names whose negotiation is remembered. Every rank feeds it the same responses in
// the same order, so a slot means the same tensor everywhere and one bit replaces a request. Slots
// are never given to another name; when all are taken, further names are negotiated in full. Token
// holder only. (After Horovod's response cache, without its eviction.)
#pragma once

#include "runtime/negotiation/wire.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo {

class ResponseCache {
 public:
  /// `ranks`: how many there are.
  ResponseCache(std::uint32_t capacity, int ranks) : capacity_(capacity), ranks_(ranks) {}

  /// The slot of a name, if it has one and was last agreed with this signature, and these splits of
  /// `rank`.
  std::optional<std::uint32_t> find(const std::string& name, const Signature& signature,
                                    const Splits& splits, int rank) const;
  /// The slot of a response that is the remembered one in all that it says.
  std::optional<std::uint32_t> find(const Response& response) const;
  /// The slot of a name, whatever is remembered of it.
  std::optional<std::uint32_t> find(const std::string& name) const;

  /// Remembers an agreed response; a name that is known gets its new signature and splits. Of an
  /// unnamed operation all names of that signature get a slot at once.
  void put(const Response& response);

  /// What the ranks agree on when each of them has announced the slot. Precondition: slot < size().
  const std::shared_ptr<const Response>& at(std::uint32_t slot) const { return slots_[slot]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

 private:
  std::shared_ptr<const Response> made(std::string name, Signature signature,
                                       SplitTable splits) const;
  void add(std::string name, Signature signature, SplitTable splits);

  const std::uint32_t capacity_;
  const int ranks_;
  std::vector<std::shared_ptr<const Response>> slots_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  /// Where the next name is, if this step is as the last one was: most names are looked for in the
  /// order in which they got their slots.
  mutable std::uint32_t expected_ = 0;
};

}  // namespace kolo
