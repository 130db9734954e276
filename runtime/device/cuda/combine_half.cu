// Combinations of float16 and bfloat16, and casts between them and float32.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

KernelsOfType float16_kernels() { return floating_kernels_for<Float16>(); }
KernelsOfType bfloat16_kernels() { return floating_kernels_for<BFloat16>(); }

Kernel cast_kernel(DataType source, DataType target) {
  const bool is_float16 = source == DataType::kFloat16 || target == DataType::kFloat16;
  if (source == DataType::kFloat32) {
    return is_float16 ? kernel_for<Combine<Real<float>, Float16, Sum>>()
                      : kernel_for<Combine<Real<float>, BFloat16, Sum>>();
  }
  return is_float16 ? kernel_for<Combine<Float16, Real<float>, Sum>>()
                    : kernel_for<Combine<BFloat16, Real<float>, Sum>>();
}

}  // namespace kolo::cuda
