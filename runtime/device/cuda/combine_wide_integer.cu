// Combinations of int64 and int32.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

KernelsOfType int64_kernels() { return integer_kernels_for<Integer<std::int64_t>>(); }
KernelsOfType int32_kernels() { return integer_kernels_for<Integer<std::int32_t>>(); }

}  // namespace kolo::cuda
