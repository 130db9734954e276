#include "runtime/device/cuda/kernels.h"

#include "runtime/base/check.h"

namespace kolo::cuda {
namespace {

Kernel of_kind(const KernelsOfType& kernels, KernelKind kind) {
  KOLO_CHECK(kind != KernelKind::kCopy);
  return kernels[static_cast<std::size_t>(kind) - 1];
}

/// Types with kernels of their own. bool has none; complex types have only products.
constexpr std::array kTypes = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt64,   DataType::kInt32,
                               DataType::kInt16,    DataType::kInt8,    DataType::kUInt8};
constexpr std::array kFloatingTypes = {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                       DataType::kBFloat16};
constexpr std::array kHalfTypes = {DataType::kFloat16, DataType::kBFloat16};

}  // namespace

Kernel kernel_of(const KernelKey& key) {
  if (key.kind == KernelKind::kCopy) return copy_kernel();
  if (key.source != key.target) return cast_kernel(key.source, key.target, key.kind);
  switch (key.source) {
    case DataType::kFloat32:
      return of_kind(float32_kernels(), key.kind);
    case DataType::kFloat64:
      return of_kind(float64_kernels(), key.kind);
    case DataType::kFloat16:
      return of_kind(float16_kernels(), key.kind);
    case DataType::kBFloat16:
      return of_kind(bfloat16_kernels(), key.kind);
    case DataType::kInt64:
      return of_kind(int64_kernels(), key.kind);
    case DataType::kInt32:
      return of_kind(int32_kernels(), key.kind);
    case DataType::kInt16:
      return of_kind(int16_kernels(), key.kind);
    case DataType::kInt8:
      return of_kind(int8_kernels(), key.kind);
    case DataType::kUInt8:
      return of_kind(uint8_kernels(), key.kind);
    case DataType::kComplex64:
      return complex64_product();
    case DataType::kComplex128:
      return complex128_product();
    case DataType::kBool:
      break;
  }
  KOLO_CHECK(false);
  return {};
}

std::vector<const void*> all_kernels() {
  std::vector<const void*> all;
  const auto add = [&](Kernel kernel) {
    all.push_back(kernel.small);
    if (kernel.large != nullptr) all.push_back(kernel.large);
  };
  add(copy_kernel());
  add(complex64_product());
  add(complex128_product());
  for (const DataType type : kTypes)
    for (const KernelKind kind :
         {KernelKind::kSum, KernelKind::kMinimum, KernelKind::kMaximum, KernelKind::kProduct})
      add(kernel_of({kind, type, type}));
  for (const DataType half : kHalfTypes)
    for (const KernelKind kind : {KernelKind::kSum, KernelKind::kProduct}) {
      add(cast_kernel(DataType::kFloat32, half, kind));
      add(cast_kernel(half, DataType::kFloat32, kind));
    }
  for (const DataType type : kFloatingTypes) {
    const AdasumKernels kernels = adasum_kernels(type);
    all.insert(all.end(), {kernels.dots, kernels.combine});
  }
  return all;
}

}  // namespace kolo::cuda
