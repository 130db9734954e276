// A text as numbers of its characters (bytes). Main thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace char_transformer {

class Text {
 public:
  /// Throws std::runtime_error for a file that cannot be read or has fewer than `least` bytes.
  Text(const std::filesystem::path& path, std::int64_t least);

  std::int64_t size() const { return numbers_.size(0); }
  std::int64_t characters() const { return static_cast<std::int64_t>(alphabet_.size()); }
  /// `count` stretches of `length` characters at random places, [count, length] int64.
  torch::Tensor stretches(std::int64_t count, std::int64_t length) const;
  /// The text of numbers, [length] int64.
  std::string spelt(const torch::Tensor& numbers) const;

 private:
  std::vector<char> alphabet_;
  torch::Tensor numbers_;
};

}  // namespace char_transformer
