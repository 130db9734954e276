// A hash of tensors' contents. Private to bindings/torch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace kolo {

/// Hashes the bits of dense tensors in order; sparse tensors are skipped. Each tensor contributes
/// the sum of its words: a mere reordering of words within a tensor goes undetected, any other
/// difference is missed with a chance of 2^-32. Waits for the devices' current streams.
std::uint32_t fingerprint_of(const std::vector<torch::Tensor>& tensors);

}  // namespace kolo
