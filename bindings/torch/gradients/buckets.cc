#include "bindings/torch/gradients/buckets.h"

#include "bindings/core/shared_memory.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/memory.h>

#include <algorithm>
#include <map>
#include <utility>

namespace kolo {
namespace {

constexpr std::int64_t kAlignment = 64;  ///< bytes: a cache line, and the widest vectors

std::int64_t element_size_of(const AgreedLayout& layout) {
  return static_cast<std::int64_t>(c10::elementSize(layout.type()));
}

torch::Tensor on_storage(const torch::Tensor& flat, std::int64_t offset, torch::IntArrayRef sizes,
                         torch::IntArrayRef strides) {
  return torch::empty({0}, flat.options()).set_(flat.storage(), offset, sizes, strides);
}

/// Uses shared memory, if there is some left, so that the bucket is reduced in place.
torch::Tensor zeros(std::int64_t elements, const torch::TensorOptions& options) {
  if (!options.device().is_cpu()) return shared_zeros({elements}, options);
  const auto bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  std::shared_ptr<void> memory = allocate_if_shared(bytes);
  return memory == nullptr ? torch::zeros({elements}, options)
                           : on_memory(std::move(memory), {elements}, options);
}

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<AgreedLayout>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     double first_cap_mb, double cap_mb) {
  struct Open {
    std::size_t bucket;
    std::int64_t bytes;
    double cap_mb;
  };
  std::vector<std::vector<std::size_t>> buckets;
  // Identifies devices by their order, which is the same on all ranks; their numbers may differ.
  std::vector<torch::Device> devices;
  std::map<std::pair<torch::ScalarType, std::ptrdiff_t>, Open> open;
  for (const std::size_t i : order) {
    const std::int64_t bytes = parameters[i].numel() * element_size_of(parameters[i]);
    auto device = std::find(devices.begin(), devices.end(), parameters[i].device());
    if (device == devices.end()) device = devices.insert(device, parameters[i].device());
    const std::pair kind(parameters[i].type(), device - devices.begin());
    const auto [it, is_first] = open.try_emplace(kind, Open{buckets.size(), 0, first_cap_mb});
    Open& current = it->second;
    if (is_first) {
      buckets.emplace_back();
    } else if (static_cast<double>(current.bytes + bytes) > current.cap_mb * 0x1p20) {
      current = {buckets.size(), 0, cap_mb};
      buckets.emplace_back();
    }
    current.bytes += bytes;
    buckets[current.bucket].push_back(i);
  }
  return buckets;
}

BucketMemory::BucketMemory(const std::vector<AgreedLayout>& parameters) {
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> offsets;
  std::int64_t end = 0;
  for (const AgreedLayout& parameter : parameters) {
    const std::int64_t step = kAlignment / element_size_of(parameter);
    offsets.push_back(end);
    end += (parameter.numel() + step - 1) / step * step;
  }
  flat_ = zeros(end, parameters.front().options());
  for (std::size_t k = 0; k < parameters.size(); ++k)
    views_.push_back(on_storage(flat_, offsets[k], parameters[k].sizes(), parameters[k].strides()));
}

std::size_t BucketMemory::tensor_at(std::uint64_t element) const {
  std::size_t k = 0;
  while (k + 1 < views_.size() &&
         std::cmp_less_equal(views_[k + 1].storage_offset() - flat_.storage_offset(), element))
    ++k;
  return k;
}

torch::Tensor BucketMemory::alias(std::size_t k) const {
  const torch::NoGradGuard no_grad;
  return on_storage(flat_, views_[k].storage_offset(), views_[k].sizes(), views_[k].strides());
}

bool BucketMemory::holds(std::size_t k, const torch::Tensor& tensor) const {
  const torch::Tensor& view = views_[k];
  return tensor.defined() && tensor.scalar_type() == view.scalar_type() &&
         tensor.const_data_ptr() == view.const_data_ptr() && tensor.sizes() == view.sizes() &&
         tensor.strides() == view.strides();
}

void BucketMemory::copy_in(std::size_t k, const torch::Tensor& tensor) {
  const bool overlaps = tensor.has_storage() && tensor.storage().is_alias_of(flat_.storage());
  torch::Tensor view = views_[k];
  view.copy_(overlaps ? tensor.clone() : tensor);
}

}  // namespace kolo
