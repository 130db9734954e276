// The device of this process. Any thread.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

namespace kolo {

/// The device that this rank computes on, by its local rank; the CPU in a build without CUDA.
/// Throws kShutdown before kolo::init().
KOLO_API torch::Device device();

}  // namespace kolo
