// A text as a sequence of character numbers. A character is a whole UTF-8 character, not a byte, so
// every sequence of numbers is valid text again. Main thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace char_transformer {

class Text {
 public:
  /// Each byte that is not UTF-8 becomes U+FFFD. Throws std::runtime_error if the file cannot be
  /// read or has fewer than `least` characters.
  Text(const std::filesystem::path& path, std::int64_t least);

  std::int64_t size() const { return numbers_.size(0); }
  /// Number of different characters.
  std::int64_t characters() const { return static_cast<std::int64_t>(alphabet_.size()); }
  /// Number of bytes that were not UTF-8.
  std::int64_t replaced() const { return replaced_; }
  /// `count` stretches of `length` characters at random places, [count, length] int64.
  torch::Tensor stretches(std::int64_t count, std::int64_t length) const;
  /// The text that `numbers` [length] int64 stand for.
  std::string spelt(const torch::Tensor& numbers) const;

 private:
  std::vector<std::string> alphabet_;
  std::int64_t replaced_ = 0;
  torch::Tensor numbers_;
};

}  // namespace char_transformer
