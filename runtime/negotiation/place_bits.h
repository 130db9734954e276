// PlaceBits: one bit for each slot of the response cache and each of some ranks, which are given by
// their places (ControlTree). Grows with the slots that it is asked for.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// Places from `first` on. Places count from a rank, which has place 0; the ranks below it in the
/// ControlTree follow, so that those below each of them are neighbours.
struct Places {
  int first = 0;
  int count = 1;
  friend bool operator==(const Places&, const Places&) = default;
};

class PlaceBits {
 public:
  explicit PlaceBits(int places) : words_((static_cast<std::size_t>(places) + 63) / 64) {}

  /// Makes room for the slots below `slots`.
  void resize(std::size_t slots) { bits_.resize(slots * words_); }
  bool any(std::uint32_t slot, Places places) const {
    bool found = false;
    for_words(slot, places,
              [&](std::size_t word, std::uint64_t mask) { found |= (bits_[word] & mask) != 0; });
    return found;
  }
  void set(std::uint32_t slot, Places places) {
    for_words(slot, places, [&](std::size_t word, std::uint64_t mask) { bits_[word] |= mask; });
  }
  void clear(std::uint32_t slot) {
    std::fill_n(bits_.begin() + static_cast<std::ptrdiff_t>(slot * words_), words_, 0);
  }
  /// Gives the slot the bits that it has in `other`.
  void copy(std::uint32_t slot, const PlaceBits& other) {
    std::copy_n(other.bits_.begin() + static_cast<std::ptrdiff_t>(slot * words_), words_,
                bits_.begin() + static_cast<std::ptrdiff_t>(slot * words_));
  }
  /// Visits the places whose bit is set, ascending.
  template <class Visit>
  void for_each(std::uint32_t slot, Visit&& visit) const {
    for (std::size_t i = 0; i < words_; ++i) {
      for (std::uint64_t word = bits_[slot * words_ + i]; word != 0; word &= word - 1)
        visit(static_cast<int>(i * 64) + std::countr_zero(word));
    }
  }

 private:
  template <class Use>
  void for_words(std::uint32_t slot, Places places, Use&& use) const {
    auto first = static_cast<std::size_t>(places.first);
    const std::size_t end = first + static_cast<std::size_t>(places.count);
    while (first < end) {
      const std::size_t in_word = std::min(64 - first % 64, end - first);
      use(slot * words_ + first / 64, ~std::uint64_t{0} >> (64 - in_word) << (first % 64));
      first += in_word;
    }
  }

  const std::size_t words_;  ///< 64-bit words of a slot
  std::vector<std::uint64_t> bits_;
};

}  // namespace kolo
