#include "bindings/torch/fingerprint.h"

#include "bindings/torch/tensor_memory.h"

#include <cstdint>

namespace kolo {
namespace {

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

/// In words of 8 bytes, which is as fast as memory is, and what is left in elements.
std::uint64_t sum_of_bits(const torch::Tensor& tensor) {
  torch::Tensor bits = plain(tensor.detach()).contiguous();
  if (bits.is_complex()) bits = torch::view_as_real(bits);
  // What has one element or none is contiguous whatever its strides are.
  bits = bits.as_strided({bits.numel()}, {1});
  constexpr std::int64_t kWord = sizeof(std::int64_t);
  const std::int64_t elements = kWord / bits.element_size();
  const auto address = reinterpret_cast<std::uintptr_t>(bits.const_data_ptr());
  if (bits.storage_offset() % elements != 0 || address % kWord != 0) bits = bits.clone();
  const std::int64_t whole = bits.numel() / elements * elements;
  const torch::Tensor words = bits.narrow(0, 0, whole).view(torch::kInt64);
  const torch::Tensor rest = bits.narrow(0, whole, bits.numel() - whole);
  const torch::Tensor sum =
      words.sum() + rest.view(integer_of(rest.element_size())).sum(torch::kInt64);
  return static_cast<std::uint64_t>(sum.item<std::int64_t>());
}

}  // namespace

std::uint32_t fingerprint_of(const std::vector<torch::Tensor>& tensors) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 by the golden ratio
  const torch::NoGradGuard no_grad;
  std::uint64_t number = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.layout() != torch::kStrided) continue;
    number = (number + sum_of_bits(tensor)) * kMultiplier;
    number ^= number >> 32;
  }
  // The upper bits of a product depend on all of what it is of.
  return static_cast<std::uint32_t>((number * kMultiplier) >> 32);
}

}  // namespace kolo
