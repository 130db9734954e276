// SlotSet: a bit vector of response cache slots, which is sent instead of requests (after Horovod's
// cache coordinator). Its encoding skips empty words at both ends. SlotsBySteps: one vector for
// each step that the calls belong to; mostly there is one. SlotsByRank: these of several ranks.
// SlotLists: those of several lists.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kolo {

class SlotSet {
 public:
  void insert(std::uint32_t slot);
  void clear() { words_.clear(); }
  bool empty() const { return words_.empty(); }
  std::size_t size() const;
  /// A bit for each slot, from the lowest.
  std::span<const std::uint64_t> words() const { return words_; }

  /// Visits the slots in ascending order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<std::uint32_t>(i * 64 + static_cast<unsigned>(std::countr_zero(word))));
      }
    }
  }

  /// Appends the encoding to `out`.
  void encode(std::string& out) const;
  /// False if the bytes are malformed, or name a slot at or above `slots`.
  static bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotSet& set);

 private:
  std::vector<std::uint64_t> words_;
};

struct SlotsOfStep {
  std::uint64_t step = 0;  ///< see Entry::step
  SlotSet slots;
};
using SlotsBySteps = std::vector<SlotsOfStep>;
using SlotsByRank = std::map<int, SlotsBySteps>;
using SlotLists = std::vector<SlotsBySteps>;

void insert(SlotsBySteps& all, std::uint64_t step, std::uint32_t slot);
std::string encode(const SlotsBySteps& all);
std::string encode(const SlotsByRank& all);
std::string encode(const SlotLists& all);
/// False if the bytes are malformed, or name a slot at or above `slots`.
bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsBySteps& all);
bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsByRank& all);
bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotLists& all);

}  // namespace kolo
