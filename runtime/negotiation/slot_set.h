// SlotSet: the bit vector of the response cache's slots that travels in place of requests (after
// Horovod's cache coordinator). Its encoding skips the empty words at both ends. SlotsBySteps: such
// vectors by the step that the calls belong to, of which there is mostly one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
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

  /// In ascending order.
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
  /// False if the bytes are no encoding, or name a slot at or above `slots`.
  static bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotSet& set);

 private:
  std::vector<std::uint64_t> words_;
};

struct SlotsOfStep {
  std::uint64_t step = 0;  ///< as Entry::step
  SlotSet slots;
};
using SlotsBySteps = std::vector<SlotsOfStep>;

void insert(SlotsBySteps& all, std::uint64_t step, std::uint32_t slot);
std::string encode(const SlotsBySteps& all);
/// False if the bytes are no encoding, or name a slot at or above `slots`.
bool decode(std::span<const std::byte> bytes, std::uint32_t slots, SlotsBySteps& all);

}  // namespace kolo
