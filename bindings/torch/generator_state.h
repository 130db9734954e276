// The state of the generators that torch's functions draw from by default on this rank.
#pragma once

#include <torch/torch.h>

namespace kolo {

/// Bytes: of the CPU's generator, then of that of kolo::device() where it is another one.
torch::Tensor generator_state();

/// What generator_state() returned. Bytes that are not there, or of a device that is not here,
/// leave that generator alone.
void set_generator_state(const torch::Tensor& state);

}  // namespace kolo
