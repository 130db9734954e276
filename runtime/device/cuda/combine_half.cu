// Combinations of float16 and bfloat16, and of these with float32.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

KernelsOfType float16_kernels() { return floating_kernels_for<Float16>(); }
KernelsOfType bfloat16_kernels() { return floating_kernels_for<BFloat16>(); }

namespace {

template <class Source, class Target>
Kernel cast_kernel_of(KernelKind kind) {
  return kind == KernelKind::kProduct ? small_kernel_for<Combine<Source, Target, Product>>()
                                      : kernel_for<Combine<Source, Target, Sum>>();
}

}  // namespace

Kernel cast_kernel(DataType source, DataType target, KernelKind kind) {
  const bool is_float16 = source == DataType::kFloat16 || target == DataType::kFloat16;
  if (source == DataType::kFloat32) {
    return is_float16 ? cast_kernel_of<Real<float>, Float16>(kind)
                      : cast_kernel_of<Real<float>, BFloat16>(kind);
  }
  return is_float16 ? cast_kernel_of<Float16, Real<float>>(kind)
                    : cast_kernel_of<BFloat16, Real<float>>(kind);
}

}  // namespace kolo::cuda
