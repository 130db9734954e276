// BatchPlan: cuts the pieces of a Combination into launches and chooses their kernel. Called by
// CudaStream on the thread that uses the stream, and by tests. Contains no CUDA.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/device/cuda/batch.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>

namespace kolo::cuda {

enum class KernelKind : std::uint8_t { kCopy, kSum, kMinimum, kMaximum, kProduct };

/// Identifies a kernel. Types with the same arithmetic share one: bool is done as uint8, a sum of
/// complex64 as a sum of twice as many float32, and an operation that changes nothing as a copy of
/// bytes.
struct KernelKey {
  KernelKind kind = KernelKind::kCopy;
  DataType source = DataType::kUInt8;
  DataType target = DataType::kUInt8;

  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

class BatchPlan {
 public:
  /// `processors`: multiprocessors of the device; all of them should get a share. Both other
  /// arguments outlive the plan.
  BatchPlan(const Combination& what, const PieceList& pieces, std::uint32_t processors);

  /// kInvalidArgument for a scale that the type does not support, an unsupported cast, or memory
  /// that is not aligned to its elements. Call check() before next().
  Status check() const;
  const KernelKey& kernel() const { return kernel_; }
  /// Fills in the next launch, with at most `words` of its words. False if no launch is left.
  bool next(LargeBatch& batch, std::uint32_t words);
  /// Whether a batch fits into a SmallBatch.
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
  std::uint64_t units_ = 1;        ///< units that the kernel counts, in one element
  std::uint32_t source_size_ = 1;  ///< bytes of one unit of a source
  std::uint32_t target_size_ = 1;
  std::uint32_t tile_elements_ = 0;
  std::size_t piece_ = 0;   ///< index of the next piece
  std::uint64_t done_ = 0;  ///< units of that piece that are already planned
};

}  // namespace kolo::cuda
