// Combinations of int16, int8 and uint8; bool uses those of uint8.
#include "runtime/device/cuda/combine_kernel.h"

namespace kolo::cuda {

KernelsOfType int16_kernels() { return integer_kernels_for<Integer<std::int16_t>>(); }
KernelsOfType int8_kernels() { return integer_kernels_for<Integer<std::int8_t>>(); }
KernelsOfType uint8_kernels() { return integer_kernels_for<Integer<std::uint8_t>>(); }

}  // namespace kolo::cuda
