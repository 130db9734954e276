// A number that stands for what tensors hold. Private to bindings/torch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace kolo {

/// Of the bits of dense tensors in their order; what is sparse counts as nothing. Of each tensor it
/// is a sum: what is only in another order within it is not told apart, what differs otherwise is,
/// but by a chance of 2^-32. Waits for what their devices' current streams have yet to write.
std::uint32_t fingerprint_of(const std::vector<torch::Tensor>& tensors);

}  // namespace kolo
