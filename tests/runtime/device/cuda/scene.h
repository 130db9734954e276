// Scene: memory of many pieces, laid out as a test says, and its copy. Two devices do the same work
// on the two, and their bytes are compared, including those between the pieces.
#pragma once

#include "runtime/device/accelerator.h"
#include "tests/runtime/device/element_cases.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace kolo::test {

/// How memory is aligned to multiples of 64 bytes.
enum class Lie : std::uint8_t { kAligned, kAlike, kApart };

class Scene {
 public:
  /// `in_place`: each piece's first destination is its last source.
  Scene(std::size_t size, const Combination& what, std::vector<std::uint64_t> counts, Lie lie,
        bool in_place)
      : what_(what), counts_(std::move(counts)) {
    constexpr std::size_t kGap = 64;
    const std::uint32_t row = what.sources + what.destinations;
    const std::size_t unit = is_complex(what.type) ? size / 2 : size;  // the alignment of memory
    for (std::size_t piece = 0; piece < counts_.size(); ++piece) {
      for (std::uint32_t k = 0; k < row; ++k) {
        const std::size_t shift = lie == Lie::kAligned ? 0
                                  : lie == Lie::kAlike ? piece % 17
                                                       : (piece * 3 + k * 5) % 17;
        offsets_.push_back((bytes_ + kGap - 1) / kGap * kGap + shift * unit);
        bytes_ = offsets_.back() + counts_[piece] * size + kGap;
      }
      if (in_place) offsets_[piece * row + what.sources] = offsets_[piece * row + what.sources - 1];
    }
    memory_.resize(bytes_ + 64);
  }

  std::byte* begin() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64;
  }
  std::size_t bytes() const { return bytes_; }

  template <class C>
  void fill(std::mt19937& random) {
    for (std::size_t i = 0; i < bytes_; ++i) begin()[i] = static_cast<std::byte>(i * 11 + 1);
    for (std::size_t piece = 0; piece < counts_.size(); ++piece) {
      for (std::uint32_t k = 0; k < what_.sources; ++k) {
        for (std::uint64_t i = 0; i < counts_[piece]; ++i) {
          const typename C::Memory value = random_element<C>(random);
          std::memcpy(at(piece, k) + i * sizeof(value), &value, sizeof(value));
        }
      }
    }
  }

  std::byte* at(std::size_t piece, std::uint32_t k) {
    return begin() + offsets_[piece * (what_.sources + what_.destinations) + k];
  }

  /// Pieces of this memory, or of a copy of it at `base`; valid until the next call.
  PieceList pieces() { return pieces(begin()); }
  PieceList pieces(std::byte* base) {
    const auto moved = [&](std::byte* address) { return base + (address - begin()); };
    sources_.clear();
    destinations_.clear();
    for (std::size_t piece = 0; piece < counts_.size(); ++piece) {
      for (std::uint32_t k = 0; k < what_.sources; ++k) sources_.push_back(moved(at(piece, k)));
      for (std::uint32_t k = 0; k < what_.destinations; ++k)
        destinations_.push_back(moved(at(piece, what_.sources + k)));
    }
    return {sources_, destinations_, counts_};
  }

  /// Applies the operation with the host's device, step by step as Combination says.
  void combine_on_host() {
    for (std::size_t piece = 0; piece < counts_.size(); ++piece) {
      std::vector<std::vector<std::byte>> scaled(what_.sources);
      std::vector<const std::byte*> from;
      std::vector<std::byte*> to;
      for (std::uint32_t k = 0; k < what_.sources; ++k) {
        from.push_back(at(piece, k));
        if ((what_.prescaled >> k & 1) == 0) continue;
        scaled[k].resize(counts_[piece] * size_of(what_.type) + 1);
        host_device().copy(what_.type, scaled[k].data(), at(piece, k), counts_[piece],
                           what_.prescale);
        from.back() = scaled[k].data();
      }
      for (std::uint32_t k = 0; k < what_.destinations; ++k)
        to.push_back(at(piece, what_.sources + k));
      const ReduceOp op = what_.sources == 1 ? sum_or_same() : what_.op;
      host_device().reduce(what_.type, op, to, from, counts_[piece], what_.postscale,
                           Stores::kCached);
    }
  }

 private:
  /// A single source is copied, whatever the operation.
  ReduceOp sum_or_same() const {
    return is_supported(what_.type, what_.op) ? what_.op : ReduceOp::kSum;
  }

  Combination what_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> memory_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

}  // namespace kolo::test
