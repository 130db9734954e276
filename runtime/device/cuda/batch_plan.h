// BatchPlan: cuts the pieces of a Combination into launches, and says which kernel does them.
// Called by CudaStream on the thread that has the stream, and by tests; no CUDA in it.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/device/cuda/batch.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>

namespace kolo::cuda {

enum class KernelKind : std::uint8_t { kCopy, kSum, kMinimum, kMaximum, kProduct };

/// What tells one kernel from another. Types that are done alike are one: bool is uint8, the sum of
/// complex64 is that of twice as many float32, what changes nothing is a copy of bytes.
struct KernelKey {
  KernelKind kind = KernelKind::kCopy;
  DataType source = DataType::kUInt8;
  DataType target = DataType::kUInt8;

  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

class BatchPlan {
 public:
  /// `processors`: of the device; all of them should get a share. Both arguments outlive the plan.
  BatchPlan(const Combination& what, const PieceList& pieces, std::uint32_t processors);

  /// kInvalidArgument: a scale that the type does not take, a cast that there is none of, memory
  /// that is not aligned to its elements. To be asked before next().
  Status check() const;
  const KernelKey& kernel() const { return kernel_; }
  /// Fills in the next launch, of at most `words` of its words; false when there is none left.
  bool next(LargeBatch& batch, std::uint32_t words);
  /// Whether a batch can travel as a SmallBatch.
  static bool is_small(const LargeBatch& batch);

 private:
  void choose_kernel();
  void choose_tile(std::uint32_t processors);

  const Combination& what_;
  const PieceList& pieces_;
  KernelKey kernel_;
  Scale prescale_;
  Scale postscale_;
  std::uint32_t prescaled_ = 0;
  std::uint64_t units_ = 1;        ///< of what the kernel counts, in an element
  std::uint32_t source_size_ = 1;  ///< bytes of what the kernel counts
  std::uint32_t target_size_ = 1;
  std::uint32_t tile_elements_ = 0;
  std::size_t piece_ = 0;   ///< the next one
  std::uint64_t done_ = 0;  ///< of it, in what the kernel counts
};

}  // namespace kolo::cuda
