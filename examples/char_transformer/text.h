// A text as numbers of its characters, which are UTF-8's and no bytes: any of them side by side are
// text again. Main thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace char_transformer {

class Text {
 public:
  /// Bytes that are not UTF-8 become U+FFFD each. Throws std::runtime_error for a file that cannot
  /// be read or has fewer than `least` characters.
  Text(const std::filesystem::path& path, std::int64_t least);

  std::int64_t size() const { return numbers_.size(0); }
  /// Different ones.
  std::int64_t characters() const { return static_cast<std::int64_t>(alphabet_.size()); }
  /// Bytes that were not UTF-8.
  std::int64_t replaced() const { return replaced_; }
  /// `count` stretches of `length` characters at random places, [count, length] int64.
  torch::Tensor stretches(std::int64_t count, std::int64_t length) const;
  /// The text of numbers, [length] int64.
  std::string spelt(const torch::Tensor& numbers) const;

 private:
  std::vector<std::string> alphabet_;
  std::int64_t replaced_ = 0;
  torch::Tensor numbers_;
};

}  // namespace char_transformer
