#include "bindings/torch/tensors/agreed_layout.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kolo {
namespace {

bool shares_elements(const torch::Tensor& tensor) {
  return at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

std::string text_of(torch::ScalarType type, torch::IntArrayRef sizes, torch::Device device) {
  return fmt::format("{} [{}] on {}", torch::toString(type), fmt::join(sizes, ", "), device.str());
}

c10::DimVector dense_strides_of(const torch::Tensor& tensor) {
  return c10::DimVector(is_dense(tensor) ? tensor.strides()
                                         : torch::empty(tensor.sizes(), torch::kMeta).strides());
}

}  // namespace

bool is_dense(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == torch::kStrided &&
         tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false();
}

torch::Tensor zero_gradient_of(const torch::Tensor& parameter) {
  return torch::zeros_like(
      parameter, parameter.options().requires_grad(false),
      is_dense(parameter) ? torch::MemoryFormat::Preserve : torch::MemoryFormat::Contiguous);
}

AgreedLayout::AgreedLayout(const torch::Tensor& tensor)
    : numel_(tensor.numel()),
      sizes_(tensor.sizes()),
      strides_(dense_strides_of(tensor)),
      type_(tensor.scalar_type()),
      device_(tensor.defined() ? tensor.device() : torch::kCPU) {}

bool AgreedLayout::fits(const torch::Tensor& tensor) const {
  return tensor.sizes() == torch::IntArrayRef(sizes_) && tensor.scalar_type() == type_ &&
         tensor.device() == device_ && !shares_elements(tensor);
}

std::string AgreedLayout::change_in(const torch::Tensor& tensor) const {
  if (fits(tensor)) return "";
  return fmt::format("is {}{}, but was {} {}",
                     text_of(tensor.scalar_type(), tensor.sizes(), tensor.device()),
                     shares_elements(tensor) ? " with several elements in one place of memory" : "",
                     text_of(type_, sizes_, device_), kWhenMade);
}

void AgreedLayout::convert_to(const torch::Tensor& tensor) {
  type_ = tensor.scalar_type();
  device_ = tensor.device();
}

bool AgreedLayout::orders(const torch::Tensor& tensor) const {
  if (tensor.is_conj() || tensor.is_neg()) return false;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    if (sizes_[i] > 1 && tensor.strides()[i] != strides_[i]) return false;
  return true;
}

torch::Tensor AgreedLayout::flat_of(const torch::Tensor& tensor) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor ordered = tensor.detach();
  if (!orders(tensor)) {
    ordered = torch::empty_strided(sizes_, strides_, tensor.options().requires_grad(false));
    ordered.copy_(tensor);
  }
  return ordered.as_strided({numel_}, {1});
}

torch::Tensor AgreedLayout::on(const torch::Tensor& flat, std::int64_t offset) const {
  return flat.as_strided(sizes_, strides_, flat.storage_offset() + offset);
}

torch::Tensor AgreedLayout::zeros(const torch::TensorOptions& options) const {
  return torch::empty_strided(sizes_, strides_, options).zero_();
}

std::vector<AgreedTensor> agreed_on(const NamedTensors& tensors) {
  std::vector<AgreedTensor> agreed;
  for (const auto& [name, tensor] : tensors) agreed.push_back({name, tensor});
  return agreed;
}

}  // namespace kolo
