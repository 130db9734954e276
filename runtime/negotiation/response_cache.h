// ResponseCache: remembers the names that were negotiated. Every rank puts the same responses in
// the same order, so a slot means the same tensor on all ranks, and one bit replaces a request. A
// slot keeps its name for ever. When all slots are taken, further names are negotiated in full.
// Progress token holder only. (After Horovod's response cache, without its eviction.)
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
  /// `ranks`: the number of ranks.
  ResponseCache(std::uint32_t capacity, int ranks) : capacity_(capacity), ranks_(ranks) {}

  /// The slot of a name, if the last agreement on it had this signature and these splits of `rank`.
  std::optional<std::uint32_t> find(const std::string& name, const Signature& signature,
                                    const Splits& splits, int rank) const;
  /// The slot of a response's name, if signature and splits are those remembered.
  std::optional<std::uint32_t> find(const Response& response) const;
  /// The slot of a name, whatever signature is remembered.
  std::optional<std::uint32_t> find(const std::string& name) const;

  /// Remembers an agreed response, unless its kind comes once under a name; a known name gets its
  /// new signature and splits. An unnamed operation gets slots for all names of its signature at
  /// once, unless its splits are uneven. If the table of splits is too long to keep, the name is
  /// negotiated in full each time.
  void put(const Response& response);

  /// The response that ranks agree on if each of them has announced the slot. Precondition: slot <
  /// size().
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
  /// Expected slot of the next name. Steps repeat, so most names are looked up in the order of
  /// their slots.
  mutable std::uint32_t expected_ = 0;
};

}  // namespace kolo
