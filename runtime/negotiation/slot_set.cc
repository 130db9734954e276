#include "runtime/negotiation/slot_set.h"

#include <algorithm>
#include <cstring>

namespace kolo {
namespace {

/// Precedes the slots of each step, and the steps of each rank or list.
struct Head {
  std::uint64_t number;  ///< the step, the rank, or the list
  std::uint64_t bytes;
};

template <class Append>
void append_part(std::string& out, std::uint64_t number, Append&& append) {
  const std::size_t begin = out.size();
  out.resize(begin + sizeof(Head));
  append(out);
  const Head head{number, out.size() - begin - sizeof(Head)};
  std::memcpy(out.data() + begin, &head, sizeof head);
}

/// Takes a part from the front of `bytes`; false if they are malformed.
bool take_part(std::span<const std::byte>& bytes, std::uint64_t& number,
               std::span<const std::byte>& part) {
  Head head{};
  if (bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.subspan(sizeof head);
  if (bytes.size() < head.bytes) return false;
  number = head.number;
  part = bytes.first(head.bytes);
  bytes = bytes.subspan(head.bytes);
  return true;
}

}  // namespace

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

void insert(SlotsBySteps& all, std::uint64_t step, std::uint32_t slot) {
  auto it = std::find_if(all.begin(), all.end(),
                         [step](const SlotsOfStep& some) { return some.step == step; });
  if (it == all.end()) it = all.insert(it, {step, {}});
  it->slots.insert(slot);
}

std::string encode(const SlotsBySteps& all) {
  std::string out;
  for (const SlotsOfStep& some : all)
    append_part(out, some.step, [&](std::string& bytes) { some.slots.encode(bytes); });
  return out;
}

std::string encode(const SlotsByRank& all) {
  std::string out;
  for (const auto& [rank, slots] : all) {
    append_part(out, static_cast<std::uint64_t>(rank),
                [&slots = slots](std::string& bytes) { bytes += encode(slots); });
  }
  return out;
}

std::string encode(const SlotLists& all) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i)
    append_part(out, i, [&](std::string& bytes) { bytes += encode(all[i]); });
  return out;
}

bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsBySteps& all) {
  std::span<const std::byte> part;
  while (!bytes.empty()) {
    SlotsOfStep& some = all.emplace_back();
    if (!take_part(bytes, some.step, part) || !SlotSet::decode(part, slots, some.slots))
      return false;
  }
  return true;
}

bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsByRank& all) {
  std::uint64_t rank = 0;
  std::span<const std::byte> part;
  while (!bytes.empty()) {
    if (!take_part(bytes, rank, part) || rank > INT32_MAX) return false;
    if (!decode(part, slots, all[static_cast<int>(rank)])) return false;
  }
  return true;
}

bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotLists& all) {
  std::uint64_t index = 0;
  std::span<const std::byte> part;
  while (!bytes.empty()) {
    if (!take_part(bytes, index, part) || !decode(part, slots, all.emplace_back())) return false;
  }
  return true;
}

}  // namespace kolo
