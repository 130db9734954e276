// Adasum's two passes, as one thread of one block runs them: dot products, then the combination.
// Which thread sums which elements, and in which order, depends only on the number of elements, so
// that equal calls give equal bits on every device. Shared by the kernels (adasum.cu) and the
// tests.
#pragma once

#include "runtime/device/cuda/batch.h"
#include "runtime/device/cuda/element_ops.h"
#include "runtime/device/cuda/on_both.h"

#include <cstdint>

namespace kolo::cuda {

/// a·a, b·b and a·b, or partial sums of them.
struct Dots {
  double aa, bb, ab;
};

/// The parameters of both kernels.
struct AdasumCall {
  std::uint64_t destination;
  std::uint64_t a, b;   ///< addresses, aligned to the element
  std::uint64_t count;  ///< elements
  std::uint64_t dots;   ///< address of kMostDotBlocks Dots: the results of the first pass
  std::uint32_t dot_blocks;
};

/// Each thread of the second pass takes the dots of one block of the first.
inline constexpr std::uint32_t kMostDotBlocks = kThreads;
/// Blocks of the first pass. Each thread has about 16 elements or more, except for small vectors.
KOLO_ON_BOTH std::uint32_t dot_blocks(std::uint64_t count) {
  const std::uint64_t blocks = (count + kThreads * 16 - 1) / (kThreads * 16);
  if (blocks >= kMostDotBlocks) return kMostDotBlocks;
  return blocks == 0 ? 1 : static_cast<std::uint32_t>(blocks);
}
/// Blocks of the second pass.
KOLO_ON_BOTH std::uint32_t combining_blocks(std::uint64_t count) {
  constexpr std::uint64_t kMost = 2048;
  const std::uint64_t blocks = (count + kThreads * 4 - 1) / (kThreads * 4);
  return blocks >= kMost ? kMost : blocks == 0 ? 1 : static_cast<std::uint32_t>(blocks);
}

template <class Element>
KOLO_ON_BOTH double wide_element(std::uint64_t address, std::uint64_t i) {
  using Memory = typename Element::Memory;
  return static_cast<double>(Element::load(reinterpret_cast<const Memory*>(address)[i]));
}

/// First pass: one thread's part.
template <class Element>
KOLO_ON_BOTH Dots dots_of_thread(const AdasumCall& call, std::uint32_t block,
                                 std::uint32_t thread) {
  Dots dots{0, 0, 0};
  const std::uint64_t step = static_cast<std::uint64_t>(call.dot_blocks) * kThreads;
  for (std::uint64_t i = static_cast<std::uint64_t>(block) * kThreads + thread; i < call.count;
       i += step) {
    const double x = wide_element<Element>(call.a, i);
    const double y = wide_element<Element>(call.b, i);
    dots.aa += x * x;
    dots.bb += y * y;
    dots.ab += x * y;
  }
  return dots;
}

/// Sums a block's kThreads dots by halves: one thread's part of the round with `half` = kThreads /
/// 2, kThreads / 4, …, 1. All threads finish a round before the next one starts. At the end dots[0]
/// is the sum.
KOLO_ON_BOTH void add_halves(Dots* dots, std::uint32_t half, std::uint32_t thread) {
  if (thread >= half) return;
  dots[thread].aa += dots[thread + half].aa;
  dots[thread].bb += dots[thread + half].bb;
  dots[thread].ab += dots[thread + half].ab;
}

/// The factor of each vector.
struct AdasumFactors {
  double of_a, of_b;
};
KOLO_ON_BOTH AdasumFactors adasum_factors(const Dots& dots) {
  return {dots.aa == 0 ? 1 : 1 - dots.ab / (2 * dots.aa),
          dots.bb == 0 ? 1 : 1 - dots.ab / (2 * dots.bb)};
}

/// Rounds from float64 as the host does: for half types by way of float32.
template <class Element>
KOLO_ON_BOTH typename Element::Memory narrow_element(double value) {
  return Element::store(static_cast<typename Element::Value>(value));
}

/// Second pass: one thread's elements.
template <class Element>
KOLO_ON_BOTH void combine_of_thread(const AdasumCall& call, const AdasumFactors& factors,
                                    std::uint32_t block, std::uint32_t blocks,
                                    std::uint32_t thread) {
  auto* const destination = reinterpret_cast<typename Element::Memory*>(call.destination);
  const std::uint64_t step = static_cast<std::uint64_t>(blocks) * kThreads;
  for (std::uint64_t i = static_cast<std::uint64_t>(block) * kThreads + thread; i < call.count;
       i += step) {
    const double x = wide_element<Element>(call.a, i);
    const double y = wide_element<Element>(call.b, i);
    destination[i] = narrow_element<Element>(factors.of_a * x + factors.of_b * y);
  }
}

}  // namespace kolo::cuda
