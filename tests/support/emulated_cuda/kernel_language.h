// nvcc's extensions of C++, for a host compiler: included before each .cu file with kolo's kernels
// (-include). A launch runs its blocks one after the other. Only in blocks that call
// __syncthreads() are GPU threads real threads: see kernels.cc.
#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
/// One for all threads of a block; blocks run one after the other.
#define __shared__ static

namespace kolo::test::emulated_cuda {
struct Place {
  std::uint32_t x = 0;
};
void meet_block();
}  // namespace kolo::test::emulated_cuda

extern thread_local kolo::test::emulated_cuda::Place threadIdx;
extern thread_local kolo::test::emulated_cuda::Place blockIdx;
extern thread_local kolo::test::emulated_cuda::Place gridDim;
inline void __syncthreads() { kolo::test::emulated_cuda::meet_block(); }
