// The kernel of all combinations; the .cu files instantiate it for their types. Device code; each
// block does one tile.
#pragma once

#include "runtime/device/cuda/kernels.h"
#include "runtime/device/cuda/tile.h"

namespace kolo::cuda {

// Four blocks per multiprocessor (64 registers per thread) keep enough loads in flight.
template <class Work, class Batch>
__global__ void __launch_bounds__(kThreads, 4) combine_pieces(const __grid_constant__ Batch batch) {
  run_tile<Work>(batch, blockIdx.x, threadIdx.x, kThreads);
}

template <class Work>
Kernel small_kernel_for() {
  return {reinterpret_cast<const void*>(&combine_pieces<Work, SmallBatch>), nullptr};
}

template <class Work>
Kernel kernel_for() {
  return {reinterpret_cast<const void*>(&combine_pieces<Work, SmallBatch>),
          reinterpret_cast<const void*>(&combine_pieces<Work, LargeBatch>)};
}

template <class Element>
KernelsOfType kernels_for(Kernel sum) {
  return {sum, small_kernel_for<Combine<Element, Element, Minimum>>(),
          small_kernel_for<Combine<Element, Element, Maximum>>(),
          small_kernel_for<Combine<Element, Element, Product>>()};
}
template <class Element>
KernelsOfType floating_kernels_for() {
  return kernels_for<Element>(kernel_for<Combine<Element, Element, Sum>>());
}
template <class Element>
KernelsOfType integer_kernels_for() {
  return kernels_for<Element>(small_kernel_for<Combine<Element, Element, Sum>>());
}

}  // namespace kolo::cuda
