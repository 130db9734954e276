// The kernels as the host sees them: handles for cudaLaunchKernel. Each .cu file implements a
// family of types, so that they compile separately. Called by CudaStream, and by CudaAccelerator to
// load them all.
#pragma once

#include "runtime/device/cuda/batch_plan.h"

#include <array>
#include <vector>

namespace kolo::cuda {

/// One kernel, compiled for each size of its parameters. Only the kernels that pack and reduce
/// gradients have the large size, too.
struct Kernel {
  const void* small = nullptr;
  const void* large = nullptr;  ///< null: use more launches
};
/// Kernels of one type: sum, minimum, maximum, product; null if the type has none.
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
/// From float32 to a half type, or back. One kernel for copy and sum, another for product.
Kernel cast_kernel(DataType source, DataType target, KernelKind kind);

/// Adasum's two passes over a floating type; adasum.h has their parameters.
struct AdasumKernels {
  const void* dots = nullptr;
  const void* combine = nullptr;
};
AdasumKernels adasum_kernels(DataType type);

/// The kernel of a key. Precondition: BatchPlan made the key, and its check() passed.
Kernel kernel_of(const KernelKey& key);
/// All kernels, for loading.
std::vector<const void*> all_kernels();

}  // namespace kolo::cuda
