// The kernels as the host sees them: handles for cudaLaunchKernel, by what they do. Implemented by
// the .cu files, a family of types each, which keeps them apart in compiling; called by CudaStream
// and, to load them all, by CudaAccelerator.
#pragma once

#include "runtime/device/cuda/batch_plan.h"

#include <array>
#include <vector>

namespace kolo::cuda {

/// One kernel, compiled for each size of its parameters: those that pack and reduce gradients take
/// large ones, too.
struct Kernel {
  const void* small = nullptr;
  const void* large = nullptr;  ///< null: more launches do it
};
/// Of one type: sum, minimum, maximum, product; null where it has none.
using KernelsOfType = std::array<Kernel, 4>;

KernelsOfType float32_kernels();
KernelsOfType float64_kernels();
KernelsOfType float16_kernels();
KernelsOfType bfloat16_kernels();
KernelsOfType int64_kernels();
KernelsOfType int32_kernels();
KernelsOfType int16_kernels();
KernelsOfType int8_kernels();
KernelsOfType uint8_kernels();
Kernel complex64_product();
Kernel complex128_product();
Kernel copy_kernel();
/// From float32 to a half type and back: copy and sum, or product.
Kernel cast_kernel(DataType source, DataType target, KernelKind kind);

/// Adasum's two passes over a floating type; their parameters are in adasum.h.
struct AdasumKernels {
  const void* dots = nullptr;
  const void* combine = nullptr;
};
AdasumKernels adasum_kernels(DataType type);

/// Precondition: BatchPlan made the key, and its check() passed.
Kernel kernel_of(const KernelKey& key);
/// All of them.
std::vector<const void*> all_kernels();

}  // namespace kolo::cuda
