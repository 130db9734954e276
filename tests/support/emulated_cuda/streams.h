// The emulated streams. Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/gpus.h"

#include <functional>
#include <memory>

namespace kolo::test::emulated_cuda {

/// Gives work to a stream; null means the device's default stream. cudaErrorInvalidResourceHandle
/// if the handle is no stream, or another device's.
cudaError_t give(cudaStream_t stream, Gpu* gpu, std::function<void()> work);

}  // namespace kolo::test::emulated_cuda
