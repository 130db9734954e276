// GuardedMemory: an input and an output in one block, apart or overlapping, with guards around them
// that show whether an operation wrote outside its output. For tests of the collectives; one
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace kolo::test {

using Bytes = std::vector<std::byte>;

/// How an operation's input and output overlap.
enum class Placement {
  kApart,
  kAtItsPlace,  ///< the smaller buffer is inside the larger, at this rank's own part
  kSameStart,   ///< both begin at one address
  kShifted,     ///< the smaller buffer is partly inside the larger, at an offset of no part
};

inline std::string_view to_string(Placement placement) {
  switch (placement) {
    case Placement::kApart:
      return "apart";
    case Placement::kAtItsPlace:
      return "at its place";
    case Placement::kSameStart:
      return "same start";
    case Placement::kShifted:
      return "shifted";
  }
  return "";
}

class GuardedMemory {
 public:
  /// `offset`: bytes from the start of the larger buffer to the start of the smaller, for
  /// kAtItsPlace and kShifted.
  GuardedMemory(const Bytes& input, std::size_t output_bytes, Placement placement,
                std::size_t offset)
      : input_(input), output_bytes_(output_bytes), placement_(placement) {
    if (placement == Placement::kApart) {
      output_at_ = input_at_ + input.size() + kGuard;
    } else if (placement != Placement::kSameStart) {
      (input.size() < output_bytes ? input_at_ : output_at_) += offset;
    }
    end_ = std::max(input_at_ + input.size(), output_at_ + output_bytes);
    block_.assign(end_ + kGuard, kUntouched);
    std::copy(input.begin(), input.end(), at(input_at_));
  }

  const std::byte* input() const { return block_.data() + input_at_; }
  std::byte* output() { return block_.data() + output_at_; }
  Bytes result() const {
    return {block_.begin() + static_cast<std::ptrdiff_t>(output_at_),
            block_.begin() + static_cast<std::ptrdiff_t>(output_at_ + output_bytes_)};
  }

  /// Where bytes outside the output were written; empty if none were.
  std::string_view damage() const {
    const auto guard = [&](std::size_t begin) {
      return std::all_of(at(begin), at(begin) + kGuard,
                         [](std::byte b) { return b == kUntouched; });
    };
    if (!guard(0)) return "bytes before the memory were written";
    if (!guard(end_)) return "bytes behind the memory were written";
    if (placement_ != Placement::kApart) return {};
    if (!std::equal(input_.begin(), input_.end(), at(input_at_))) return "the input was written";
    if (!guard(input_at_ + input_.size())) return "bytes between input and output were written";
    return {};
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  static constexpr std::byte kUntouched{0xA5};

  Bytes::iterator at(std::size_t offset) {
    return block_.begin() + static_cast<std::ptrdiff_t>(offset);
  }
  Bytes::const_iterator at(std::size_t offset) const {
    return block_.begin() + static_cast<std::ptrdiff_t>(offset);
  }

  const Bytes input_;
  const std::size_t output_bytes_;
  const Placement placement_;
  std::size_t input_at_ = kGuard;
  std::size_t output_at_ = kGuard;
  std::size_t end_ = 0;
  Bytes block_;
};

}  // namespace kolo::test
