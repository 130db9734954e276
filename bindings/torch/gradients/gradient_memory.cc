#include "bindings/torch/gradients/gradient_memory.h"

#include "bindings/core/shared_memory.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/kolo.h>

#include <memory>
#include <utility>

namespace kolo {
namespace {

/// Whether the gradient has values that could lie in other memory.
bool can_move(const torch::Tensor& gradient) {
  return is_initialized() && gradient.layout() == torch::kStrided && gradient.nbytes() > 0 &&
         is_plain(gradient) && !gradient.requires_grad();
}

}  // namespace

bool GradientMemory::give(torch::Tensor& gradient) {
  if (has_none_ || !can_move(gradient)) return true;
  if (gradient.storage().use_count() != 1) return false;
  if (!fits(gradient)) {
    const int ordinal = gradient.is_cuda() ? device_ordinal() : -1;
    has_none_ = !device_misfit(gradient.device(), ordinal).empty();
    if (has_none_) return true;
    std::shared_ptr<void> memory = gradient.is_cuda() ? allocate_on_device(gradient.nbytes())
                                                      : allocate_if_shared(gradient.nbytes());
    has_none_ = memory == nullptr;
    if (has_none_) return true;
    memory_ = on_memory(std::move(memory), {gradient.numel()}, gradient.options());
  } else if (memory_.storage().use_count() != 1) {
    return false;
  }
  gradient.set_data(torch::empty({0}, memory_.options())
                        .set_(memory_.storage(), 0, gradient.sizes(), gradient.strides()));
  return true;
}

bool GradientMemory::fits(const torch::Tensor& gradient) const {
  return memory_.defined() && memory_.numel() == gradient.numel() &&
         memory_.scalar_type() == gradient.scalar_type() && memory_.device() == gradient.device();
}

}  // namespace kolo
