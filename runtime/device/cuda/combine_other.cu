// Copies of bytes, and products of complex numbers.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

Kernel copy_kernel() { return kernel_for<Copy>(); }
Kernel complex64_product() {
  return small_kernel_for<Combine<Complex<float>, Complex<float>, Product>>();
}
Kernel complex128_product() {
  return small_kernel_for<Combine<Complex<double>, Complex<double>, Product>>();
}

}  // namespace kolo::cuda
