// run_tile(): the work of one thread of one block on its tile of a batch: which elements it does,
// how wide it loads and stores, and how it combines. Shared by the kernel (combine_kernel.h) and
// the tests, which run every block and thread. No thread waits for another.
#pragma once

#include "runtime/device/cuda/batch.h"
#include "runtime/device/cuda/element_ops.h"
#include "runtime/device/cuda/on_both.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kolo::cuda {

/// kBytes that one instruction can load or store; aligned as the instruction requires.
template <std::uint32_t kBytes>
struct alignas(kBytes) Words {
  std::uint32_t of[kBytes / 4];
};
/// kCount elements in memory, as one word.
template <class Memory, std::uint32_t kCount>
using Raw = typename std::conditional_t<kCount == 1, std::type_identity<Memory>,
                                        std::type_identity<Words<sizeof(Memory) * kCount>>>::type;
/// kCount elements as an array.
template <class T, std::uint32_t kCount>
struct Chunk {
  T of[kCount];
};

// On the host, an address that would fault on a device ends the test.
template <class R>
KOLO_ON_BOTH R load_raw(std::uint64_t address) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const R*>(address);
#else
  if (address % alignof(R) != 0) __builtin_trap();
  R raw;
  std::memcpy(&raw, reinterpret_cast<const void*>(address), sizeof(R));
  return raw;
#endif
}

template <class R>
KOLO_ON_BOTH void store_raw(std::uint64_t address, const R& raw) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<R*>(address) = raw;
#else
  if (address % alignof(R) != 0) __builtin_trap();
  std::memcpy(reinterpret_cast<void*>(address), &raw, sizeof(R));
#endif
}

template <class To, class From>
KOLO_ON_BOTH To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// Destinations = post(op over pre(sources)), from elements of type Source to elements of type
/// Target.
template <class SourceElement, class TargetElement, class Operation>
struct Combine {
  using Source = SourceElement;
  using Target = TargetElement;
  using Value = typename Source::Value;
  /// Chunks that a thread loads at once; their values must fit into its registers.
  static constexpr std::uint32_t kChunksAtOnce =
      sizeof(typename Source::Memory) + sizeof(typename Target::Memory) <= 4 ? 2 : 4;

  template <class Batch>
  KOLO_ON_BOTH explicit Combine(const Batch& batch)
      : prescaled(batch.prescaled),
        pre(Source::factor(batch.prescale)),
        post(Target::factor(batch.postscale)) {}

  template <std::uint32_t kCount>
  using Accumulator = Chunk<Value, kCount>;

  template <std::uint32_t kCount>
  KOLO_ON_BOTH void take(Accumulator<kCount>& sum, std::uint32_t source,
                         const Raw<typename Source::Memory, kCount>& raw) const {
    const auto chunk = as<Chunk<typename Source::Memory, kCount>>(raw);
    const bool is_prescaled = (prescaled >> source & 1U) != 0;
    KOLO_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) {
      Value value = Source::load(chunk.of[i]);
      if (is_prescaled) value = Source::load(Source::store(Source::scaled(value, pre)));
      sum.of[i] = source == 0 ? value : Operation::of(sum.of[i], value);
    }
  }
  template <std::uint32_t kCount>
  KOLO_ON_BOTH Raw<typename Target::Memory, kCount> result(const Accumulator<kCount>& sum) const {
    Chunk<typename Target::Memory, kCount> chunk;
    KOLO_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i)
      chunk.of[i] = Target::store(Target::scaled(sum.of[i], post));
    return as<Raw<typename Target::Memory, kCount>>(chunk);
  }

  std::uint32_t prescaled;
  typename Source::Factor pre;
  typename Target::Factor post;
};

/// Copies the bytes of one source.
struct Copy {
  using Source = Integer<std::uint8_t>;
  using Target = Integer<std::uint8_t>;
  static constexpr std::uint32_t kChunksAtOnce = 4;

  template <class Batch>
  KOLO_ON_BOTH explicit Copy(const Batch& /*batch*/) {}

  template <std::uint32_t kCount>
  using Accumulator = Raw<std::uint8_t, kCount>;

  template <std::uint32_t kCount>
  KOLO_ON_BOTH void take(Accumulator<kCount>& sum, std::uint32_t /*source*/,
                         const Accumulator<kCount>& raw) const {
    sum = raw;
  }
  template <std::uint32_t kCount>
  KOLO_ON_BOTH const Accumulator<kCount>& result(const Accumulator<kCount>& sum) const {
    return sum;
  }
};

/// One thread's part of a tile, whose memory begins at `addresses` + `begin` elements.
template <class Work, class Batch>
struct TilePart {
  using SourceMemory = typename Work::Source::Memory;
  using TargetMemory = typename Work::Target::Memory;
  /// kWide and kNarrow: elements of the wider type in 16 bytes and in 4 bytes.
  static constexpr std::uint32_t kSize = sizeof(SourceMemory) > sizeof(TargetMemory)
                                             ? sizeof(SourceMemory)
                                             : sizeof(TargetMemory);
  static constexpr std::uint32_t kWide = kSize < 16 ? 16 / kSize : 1;
  static constexpr std::uint32_t kNarrow = kSize < 4 ? 4 / kSize : 1;
  static constexpr std::uint32_t kAtOnce = Work::kChunksAtOnce;

  const Batch& batch;
  const std::uint64_t* addresses;
  std::uint64_t begin;
  std::uint32_t count;
  std::uint32_t thread;
  std::uint32_t threads;

  KOLO_ON_BOTH std::uint64_t source(std::uint32_t k, std::uint32_t element) const {
    return addresses[k] + (begin + element) * sizeof(SourceMemory);
  }
  KOLO_ON_BOTH std::uint64_t destination(std::uint32_t k, std::uint32_t element) const {
    return addresses[batch.sources + k] + (begin + element) * sizeof(TargetMemory);
  }

  /// Combines up to kChunks chunks of kCount elements: the first at `element`, the others at
  /// distances of `step`, all before `end`. Reads all sources before it writes, since a destination
  /// may be a source.
  template <std::uint32_t kCount, std::uint32_t kChunks>
  KOLO_ON_BOTH void combine(const Work& work, std::uint32_t element, std::uint32_t step,
                            std::uint32_t end) const {
    typename Work::template Accumulator<kCount> sums[kChunks] = {};
    for (std::uint32_t k = 0; k < batch.sources; ++k) {
      const std::uint64_t from = source(k, element);
      Raw<SourceMemory, kCount> raw[kChunks] = {};
      KOLO_UNROLL
      for (std::uint32_t c = 0; c < kChunks; ++c)
        if (element + c * step < end)
          raw[c] = load_raw<Raw<SourceMemory, kCount>>(from + static_cast<std::uint64_t>(c * step) *
                                                                  sizeof(SourceMemory));
      KOLO_UNROLL
      for (std::uint32_t c = 0; c < kChunks; ++c)
        if (element + c * step < end) work.template take<kCount>(sums[c], k, raw[c]);
    }
    KOLO_UNROLL
    for (std::uint32_t c = 0; c < kChunks; ++c) {
      if (element + c * step >= end) continue;
      const auto result = work.template result<kCount>(sums[c]);
      for (std::uint32_t k = 0; k < batch.destinations; ++k)
        store_raw(destination(k, element + c * step), result);
    }
  }

  /// Combines in chunks of kCount elements. The tile begins `phase` elements after a boundary that
  /// all memories share. Elements left at both ends are done one by one.
  template <std::uint32_t kCount>
  KOLO_ON_BOTH void run(const Work& work, std::uint32_t phase) const {
    const std::uint32_t before = (kCount - phase % kCount) % kCount;
    const std::uint32_t head = before < count ? before : count;
    const std::uint32_t chunks = (count - head) / kCount;
    const std::uint32_t end = head + chunks * kCount;
    const std::uint32_t step = threads * kCount;
    // Narrower chunks take fewer registers, so more of them fit.
    constexpr std::uint32_t kMany = kCount < kWide ? 8 : kAtOnce;
    for (std::uint32_t i = head + thread * kCount; i < end; i += kMany * step)
      combine<kCount, kMany>(work, i, step, end);
    if constexpr (kCount > 1) {
      const std::uint32_t rest = head + (count - end);
      for (std::uint32_t i = thread; i < rest; i += threads) {
        const std::uint32_t element = i < head ? i : end + (i - head);
        combine<1, 1>(work, element, 1, element + 1);
      }
    }
  }
};

/// Runs thread `thread` of the `threads` threads of the block that does tile `tile`.
template <class Work, class Batch>
KOLO_ON_BOTH void run_tile(const Batch& batch, std::uint32_t tile, std::uint32_t thread,
                           std::uint32_t threads) {
  using Part = TilePart<Work, Batch>;
  const std::uint32_t piece = batch.piece_of(tile);
  const std::uint64_t begin =
      static_cast<std::uint64_t>(tile - batch.first_tile(piece)) * batch.tile_elements;
  const auto left = static_cast<std::uint32_t>(batch.count(piece) - begin);
  const std::uint32_t count = left < batch.tile_elements ? left : batch.tile_elements;
  const Part part{batch, batch.addresses(piece), begin, count, thread, threads};

  // Position of each memory, in elements. Wide chunks need the same position relative to a boundary
  // in all memories. Tiles begin at multiples of 16 elements, so what holds for the piece holds for
  // its tiles.
  const auto phase =
      static_cast<std::uint32_t>(part.addresses[0] / sizeof(typename Part::SourceMemory));
  std::uint32_t differing = 0;
  std::uint64_t between = 0;  // a complex number is aligned only to its parts
  for (std::uint32_t k = 0; k < batch.sources; ++k) {
    constexpr std::uint64_t kSize = sizeof(typename Part::SourceMemory);
    differing |= phase ^ static_cast<std::uint32_t>(part.addresses[k] / kSize);
    between |= part.addresses[k] % kSize;
  }
  for (std::uint32_t k = 0; k < batch.destinations; ++k) {
    constexpr std::uint64_t kSize = sizeof(typename Part::TargetMemory);
    const std::uint64_t address = part.addresses[batch.sources + k];
    differing |= phase ^ static_cast<std::uint32_t>(address / kSize);
    between |= address % kSize;
  }
  const Work work(batch);
  if (Part::kWide > 1 && between == 0 && differing % Part::kWide == 0) {
    part.template run<Part::kWide>(work, phase);
  } else if (Part::kNarrow > 1 && between == 0 && differing % Part::kNarrow == 0) {
    part.template run<Part::kNarrow>(work, phase);
  } else {
    part.template run<1>(work, 0);
  }
}

}  // namespace kolo::cuda
