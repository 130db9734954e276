// Adasum's two kernels. Device code; a block sums its threads' parts in shared memory.
#include "runtime/device/cuda/adasum.h"
#include "runtime/device/cuda/kernels.h"

namespace kolo::cuda {
namespace {

/// The sum of all threads' dots, returned to each thread.
__device__ Dots sum_of_block(const Dots& mine) {
  __shared__ Dots dots[kThreads];
  dots[threadIdx.x] = mine;
  __syncthreads();
  for (std::uint32_t half = kThreads / 2; half > 0; half /= 2) {
    add_halves(dots, half, threadIdx.x);
    __syncthreads();
  }
  return dots[0];
}

template <class Element>
__global__ void __launch_bounds__(kThreads) adasum_dots(const AdasumCall call) {
  const Dots sum = sum_of_block(dots_of_thread<Element>(call, blockIdx.x, threadIdx.x));
  if (threadIdx.x == 0) reinterpret_cast<Dots*>(call.dots)[blockIdx.x] = sum;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) adasum_combine(const AdasumCall call) {
  Dots mine{0, 0, 0};
  if (threadIdx.x < call.dot_blocks) mine = reinterpret_cast<const Dots*>(call.dots)[threadIdx.x];
  const AdasumFactors factors = adasum_factors(sum_of_block(mine));
  combine_of_thread<Element>(call, factors, blockIdx.x, gridDim.x, threadIdx.x);
}

template <class Element>
AdasumKernels kernels_for() {
  return {reinterpret_cast<const void*>(&adasum_dots<Element>),
          reinterpret_cast<const void*>(&adasum_combine<Element>)};
}

}  // namespace

AdasumKernels adasum_kernels(DataType type) {
  if (type == DataType::kFloat32) return kernels_for<Real<float>>();
  if (type == DataType::kFloat64) return kernels_for<Real<double>>();
  if (type == DataType::kFloat16) return kernels_for<Float16>();
  if (type == DataType::kBFloat16) return kernels_for<BFloat16>();
  return {};
}

}  // namespace kolo::cuda
