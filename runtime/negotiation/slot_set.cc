#include "runtime/negotiation/slot_set.h"

#include <algorithm>
#include <cstring>

namespace kolo {
namespace {

/// Precedes the slots of each step.
struct StepHead {
  std::uint64_t step;
  std::uint64_t bytes;
};

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
  for (const auto& [step, slots] : all) {
    const std::size_t begin = out.size();
    out.resize(begin + sizeof(StepHead));
    slots.encode(out);
    const StepHead head{step, out.size() - begin - sizeof(StepHead)};
    std::memcpy(out.data() + begin, &head, sizeof head);
  }
  return out;
}

bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsBySteps& all) {
  while (!bytes.empty()) {
    StepHead head{};
    if (bytes.size() < sizeof head) return false;
    std::memcpy(&head, bytes.data(), sizeof head);
    bytes = bytes.subspan(sizeof head);
    if (bytes.size() < head.bytes) return false;
    SlotsOfStep& some = all.emplace_back();
    some.step = head.step;
    if (!SlotSet::decode(bytes.first(head.bytes), slots, some.slots)) return false;
    bytes = bytes.subspan(head.bytes);
  }
  return true;
}

}  // namespace kolo
