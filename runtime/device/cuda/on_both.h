// Macros with which nvcc compiles a function for device and host, and any other compiler for the
// host. So tests can run the device's blocks and threads without a device. Included by the headers
// of this folder that kernels share with tests.
#pragma once

#if defined(__CUDACC__)
/// Runs on device and host; always inlined.
#define KOLO_ON_BOTH __host__ __device__ __forceinline__
/// Runs on device and host; never inlined: for long, rare code that a kernel uses in many places.
#define KOLO_ON_BOTH_CALLED __host__ __device__ __noinline__
#else
#define KOLO_ON_BOTH inline
#define KOLO_ON_BOTH_CALLED inline
#endif

/// Put before a loop that a kernel unrolls, so that arrays become registers.
#if defined(__CUDA_ARCH__)
#define KOLO_UNROLL _Pragma("unroll")
#else
#define KOLO_UNROLL
#endif
