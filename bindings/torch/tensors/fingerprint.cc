#include "bindings/torch/tensors/fingerprint.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <cstdint>
#include <cstring>

namespace kolo {
namespace {

constexpr std::int64_t kWord = sizeof(std::int64_t);

torch::ScalarType integer_of(std::int64_t bytes) {
  switch (bytes) {
    case 1:
      return torch::kUInt8;
    case 2:
      return torch::kInt16;
    case 4:
      return torch::kInt32;
    default:
      return torch::kInt64;
  }
}

/// Sum of the elements of `rest` as integers; `rest` is shorter than a word.
std::uint64_t sum_of_elements(const torch::Tensor& rest) {
  if (rest.numel() == 0) return 0;
  const torch::Tensor sum = rest.view(integer_of(rest.element_size())).sum(torch::kInt64);
  return static_cast<std::uint64_t>(sum.item<std::int64_t>());
}

/// A plain loop: LibTorch's sum takes many times as long for a small tensor.
std::uint64_t sum_of_words(const void* memory, std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t word;
    std::memcpy(&word, static_cast<const char*>(memory) + i * kWord, sizeof word);
    sum += word;
  }
  return sum;
}

/// Sums words of 8 bytes, which runs at memory speed, and the remaining elements.
std::uint64_t sum_of_bits(const torch::Tensor& tensor) {
  torch::Tensor bits = plain(tensor.detach()).contiguous();
  if (bits.is_complex()) bits = torch::view_as_real(bits);
  // A tensor of one element or none is contiguous whatever its strides are.
  bits = bits.as_strided({bits.numel()}, {1});
  const std::int64_t elements = kWord / bits.element_size();
  const std::int64_t words = bits.numel() / elements;
  const torch::Tensor rest = bits.narrow(0, words * elements, bits.numel() - words * elements);
  if (bits.is_cpu()) return sum_of_words(bits.const_data_ptr(), words) + sum_of_elements(rest);
  const auto address = reinterpret_cast<std::uintptr_t>(bits.const_data_ptr());
  if (bits.storage_offset() % elements != 0 || address % kWord != 0) bits = bits.clone();
  const torch::Tensor sum = bits.narrow(0, 0, words * elements).view(torch::kInt64).sum();
  return static_cast<std::uint64_t>(sum.item<std::int64_t>()) + sum_of_elements(rest);
}

}  // namespace

std::uint32_t fingerprint_of(const std::vector<torch::Tensor>& tensors) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 divided by the golden ratio
  const torch::NoGradGuard no_grad;
  std::uint64_t number = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.layout() != torch::kStrided) continue;
    number = (number + sum_of_bits(tensor)) * kMultiplier;
    number ^= number >> 32;
  }
  // The upper bits of a product depend on all bits of its factors.
  return static_cast<std::uint32_t>((number * kMultiplier) >> 32);
}

}  // namespace kolo
