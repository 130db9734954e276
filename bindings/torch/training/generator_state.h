// The state of the random generators that torch's functions use by default on this rank.
#pragma once

#include <torch/torch.h>

namespace kolo {

/// Bytes of the CPU generator's state, then of kolo::device()'s generator if that is another
/// device.
torch::Tensor generator_state();

/// Restores bytes that generator_state() returned. A generator whose bytes are missing keeps its
/// state, and bytes of a device that this rank lacks are ignored.
void set_generator_state(const torch::Tensor& state);

}  // namespace kolo
