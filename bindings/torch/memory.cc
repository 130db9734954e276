// Tensors on the core's shared memory, whose storage holds the allocation. Any thread.
#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/memory.h>

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

namespace kolo {

torch::Tensor shared_zeros(torch::IntArrayRef sizes, const torch::TensorOptions& options) {
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("kolo::shared_zeros: [{}] is no shape", fmt::join(sizes, ", ")));
  }
  // Peers read CUDA memory block by block, through memory of kolo's own that they have mapped.
  if (options.device().is_cuda()) return torch::zeros(sizes, options);
  if (!options.device().is_cpu()) {
    raise(ErrorCode::kUnsupported,
          fmt::format("kolo::shared_zeros: kolo takes memory on cpu and cuda, not on {}",
                      options.device().str()));
  }
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) *
                     c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  std::shared_ptr<void> memory = allocate(bytes);
  void* const data = memory.get();
  return torch::from_blob(
      data, sizes, [memory = std::move(memory)](void*) {}, options);
}

}  // namespace kolo
