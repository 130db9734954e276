// Tensors on the core's shared memory; their storage owns the allocation. Any thread.
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/memory.h>

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace kolo {

namespace {

/// CUDA without an index means this rank's device, not the current device.
torch::TensorOptions with_index(const torch::TensorOptions& options) {
  const torch::Device device = options.device();
  if (!device.is_cuda() || device.has_index()) return options;
  const int ordinal = device_ordinal();
  if (ordinal < 0) {
    raise(ErrorCode::kUnsupported,
          "kolo::shared_zeros on cuda: " + device_misfit({torch::kCUDA, 0}, ordinal));
  }
  return options.device(torch::kCUDA, static_cast<c10::DeviceIndex>(ordinal));
}

}  // namespace

torch::Tensor shared_zeros(torch::IntArrayRef sizes, const torch::TensorOptions& wanted) {
  const torch::TensorOptions options = with_index(wanted);
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("kolo::shared_zeros: [{}] is no shape", fmt::join(sizes, ", ")));
  }
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) *
                     c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  if (const torch::Device device = options.device(); device.is_cuda()) {
    std::shared_ptr<void> memory;
    if (bytes > 0 && is_initialized() && device.index() == device_ordinal())
      memory = allocate_on_device(bytes);
    return memory == nullptr ? torch::zeros(sizes, options)
                             : on_memory(std::move(memory), sizes, options);
  }
  if (!options.device().is_cpu()) {
    raise(ErrorCode::kUnsupported,
          fmt::format("kolo::shared_zeros: kolo takes memory on cpu and cuda, not on {}",
                      options.device().str()));
  }
  return on_memory(allocate(bytes), sizes, options);
}

}  // namespace kolo
