#include "runtime/negotiation/slot_set.h"

#include <cstring>

namespace kolo {

void SlotSet::insert(std::uint32_t slot) {
  if (words_.size() <= slot / 64) words_.resize(slot / 64 + 1);
  words_[slot / 64] |= std::uint64_t{1} << (slot % 64);
}

std::size_t SlotSet::size() const {
  std::size_t slots = 0;
  for (const std::uint64_t word : words_) slots += static_cast<std::size_t>(std::popcount(word));
  return slots;
}

void SlotSet::encode(std::string& out) const {
  std::uint32_t first = 0;
  while (first < words_.size() && words_[first] == 0) ++first;
  out.append(reinterpret_cast<const char*>(&first), sizeof first);
  out.append(reinterpret_cast<const char*>(words_.data() + first),
             (words_.size() - first) * sizeof(std::uint64_t));
}

bool SlotSet::decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotSet& set) {
  std::uint32_t first = 0;
  if (bytes.size() < sizeof first || (bytes.size() - sizeof first) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  std::memcpy(&first, bytes.data(), sizeof first);
  const auto body = bytes.subspan(sizeof first);
  const std::uint64_t words = first + body.size() / sizeof(std::uint64_t);
  if (words > (std::uint64_t{slots} + 63) / 64) return false;
  set.words_.assign(words, 0);
  if (!body.empty()) std::memcpy(set.words_.data() + first, body.data(), body.size());
  if (slots % 64 != 0 && set.words_.size() == slots / 64 + 1) {
    if ((set.words_.back() >> (slots % 64)) != 0) return false;
  }
  return true;
}

}  // namespace kolo
