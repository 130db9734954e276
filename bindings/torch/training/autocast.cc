#include <kolo/torch/autocast.h>

#include "bindings/torch/tensors/tensor_memory.h"

#include <ATen/autocast_mode.h>

#include <string>

namespace kolo {
namespace {

torch::DeviceType checked(torch::Device device) {
  // Other devices have no kernels for reducing gradients over ranks, nor for unscaling.
  if (device.is_cpu() || device.is_cuda()) return device.type();
  raise(ErrorCode::kUnsupported, "Autocast: the device is " + device.str() + "; it is cpu or cuda");
}

}  // namespace

Autocast::Autocast(torch::Device device, const AutocastOptions& options)
    : type_(checked(device)),
      enabled_before_(at::autocast::is_autocast_enabled(type_)),
      dtype_before_(at::autocast::get_autocast_dtype(type_)),
      cache_before_(at::autocast::is_autocast_cache_enabled()) {
  const torch::ScalarType dtype = options.dtype.value_or(dtype_before_);
  if (dtype != torch::kFloat16 && dtype != torch::kBFloat16) {
    raise(ErrorCode::kInvalidArgument,
          "Autocast: the type is " + std::string(toString(dtype)) + "; it is Half or BFloat16");
  }
  at::autocast::set_autocast_enabled(type_, options.enabled);
  at::autocast::set_autocast_dtype(type_, dtype);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(options.cache_enabled);
}

Autocast::~Autocast() {
  // The cache is invalid by the next forward, because weights change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, enabled_before_);
  at::autocast::set_autocast_dtype(type_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace kolo
