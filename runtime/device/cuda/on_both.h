// What lets one piece of arithmetic be compiled for the device by nvcc and for the host by any
// compiler, so that tests play the device's blocks and threads without a device. Included by the
// headers of this folder that kernels share with tests.
#pragma once

#if defined(__CUDACC__)
/// Runs on the device and on the host; always part of its caller.
#define KOLO_ON_BOTH __host__ __device__ __forceinline__
/// The same, but called: for what is long, rare and used at many places of a kernel.
#define KOLO_ON_BOTH_CALLED __host__ __device__ __noinline__
#else
#define KOLO_ON_BOTH inline
#define KOLO_ON_BOTH_CALLED inline
#endif

/// Before a loop whose rounds a kernel writes out, so that arrays become registers.
#if defined(__CUDA_ARCH__)
#define KOLO_UNROLL _Pragma("unroll")
#else
#define KOLO_UNROLL
#endif
