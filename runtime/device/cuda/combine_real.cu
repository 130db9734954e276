// Combinations of float32 and float64.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

KernelsOfType float32_kernels() { return floating_kernels_for<Real<float>>(); }
KernelsOfType float64_kernels() { return floating_kernels_for<Real<double>>(); }

}  // namespace kolo::cuda
