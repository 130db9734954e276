#include "runtime/device/cuda/batch_plan.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/device/partial_sums.h"

#include <algorithm>
#include <bit>

namespace kolo::cuda {
namespace {

/// Bytes of a tile: large enough that finding its piece costs little, small enough that each
/// multiprocessor gets some tiles.
constexpr std::uint64_t kSmallestTile = 4 << 10;
constexpr std::uint64_t kLargestTile = 16 << 10;
/// Blocks for each multiprocessor, so that all are busy until the end.
constexpr std::uint64_t kTilesPerProcessor = 8;
/// A longer piece is split into several. A multiple of every tile size.
constexpr std::uint64_t kLargestPiece = 1ULL << 31;
/// Largest number of blocks in one launch.
constexpr std::uint64_t kMostTiles = (1ULL << 31) - 1;

/// A complex number needs only the alignment of its parts.
std::size_t alignment_of(DataType type) {
  return is_complex(type) ? size_of(type) / 2 : size_of(type);
}

KernelKind kind_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return KernelKind::kSum;
    case ReduceOp::kMin:
      return KernelKind::kMinimum;
    case ReduceOp::kMax:
      return KernelKind::kMaximum;
    case ReduceOp::kProduct:
      return KernelKind::kProduct;
    case ReduceOp::kAdasum:
      break;
  }
  KOLO_CHECK(false);
  return KernelKind::kSum;
}

/// float32 becomes a half type, or the reverse.
bool is_cast(DataType from, DataType to) {
  return (from == DataType::kFloat32 && is_half(to)) || (is_half(from) && to == DataType::kFloat32);
}

/// Floating types: divides the factor once, here.
Scale ready(DataType type, Scale scale) {
  if (!is_floating(type) && !is_complex(type)) return scale;
  return {scale.factor / static_cast<double>(scale.divisor), 1};
}

}  // namespace

BatchPlan::BatchPlan(const Combination& what, const PieceList& pieces, std::uint32_t processors)
    : what_(what), pieces_(pieces) {
  KOLO_CHECK(what.sources > 0 && what.sources <= 32 && what.destinations > 0);
  KOLO_CHECK(what.sources + what.destinations < kSmallWords);
  KOLO_CHECK(what.prescale.divisor != 0 && what.postscale.divisor != 0);
  KOLO_CHECK(pieces.sources.size() == pieces.counts.size() * what.sources);
  KOLO_CHECK(pieces.destinations.size() == pieces.counts.size() * what.destinations);
  choose_kernel();
  choose_tile(processors);
}

Status BatchPlan::check() const {
  const DataType from = what_.source_type.value_or(what_.type);
  if (what_.type == DataType::kBool && !(prescale_.is_identity() && postscale_.is_identity()))
    return KOLO_ERROR(kInvalidArgument, "bool cannot be scaled; combine it as it is");
  const bool is_summed = kernel_.kind == KernelKind::kSum || kernel_.kind == KernelKind::kProduct;
  if (from != what_.type && !(is_cast(from, what_.type) && is_summed))
    return KOLO_ERROR(kInvalidArgument,
                      "{} cannot become {} by {}: float32 becomes float16 or bfloat16 and back, as "
                      "a copy, sum or product",
                      to_string(from), to_string(what_.type), to_string(what_.op));
  const auto misaligned = [&](const auto& addresses, DataType type) -> Status {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (reinterpret_cast<std::uintptr_t>(addresses[i]) % alignment_of(type) == 0) continue;
      return KOLO_ERROR(kInvalidArgument, "memory {} at {} is not aligned to {}, as it must be", i,
                        fmt::ptr(addresses[i]), to_string(type));
    }
    return {};
  };
  KOLO_TRY(misaligned(pieces_.sources, from));
  return misaligned(pieces_.destinations, what_.type);
}

bool BatchPlan::next(LargeBatch& batch, std::uint32_t words) {
  const std::uint32_t row = what_.sources + what_.destinations;
  std::uint64_t tiles = 0;
  batch.pieces = 0;
  // The addresses follow one word per piece, but the number of pieces is known only at the end. So
  // gather the addresses behind the largest possible number of pieces, and move them then.
  const std::uint32_t most = words / (row + 1);
  KOLO_CHECK(most > 0 && words <= kLargeWords);
  std::uint64_t* address = batch.words + most;
  while (piece_ < pieces_.counts.size() && batch.pieces < most) {
    const std::uint64_t all = pieces_.counts[piece_] * units_;
    const std::uint64_t count = std::min(all - done_, kLargestPiece);
    const std::uint64_t needed = ceil_div(count, tile_elements_);
    if (count > 0) {
      if (tiles + needed > kMostTiles) break;
      batch.words[batch.pieces++] = tiles | count << 32;
      tiles += needed;
      for (std::uint32_t k = 0; k < what_.sources; ++k)
        *address++ = reinterpret_cast<std::uint64_t>(pieces_.sources[piece_ * what_.sources + k]) +
                     done_ * source_size_;
      for (std::uint32_t k = 0; k < what_.destinations; ++k)
        *address++ =
            reinterpret_cast<std::uint64_t>(pieces_.destinations[piece_ * what_.destinations + k]) +
            done_ * target_size_;
    }
    done_ += count;
    if (done_ < all) continue;
    ++piece_;
    done_ = 0;
  }
  if (batch.pieces == 0) return false;
  std::copy(batch.words + most, address, batch.words + batch.pieces);
  batch.sources = what_.sources;
  batch.destinations = what_.destinations;
  batch.prescaled = prescaled_;
  batch.tile_elements = tile_elements_;
  batch.tiles = static_cast<std::uint32_t>(tiles);
  batch.prescale = prescale_;
  batch.postscale = postscale_;
  return true;
}

bool BatchPlan::is_small(const LargeBatch& batch) {
  return static_cast<std::uint64_t>(batch.pieces) * (1 + batch.sources + batch.destinations) <=
         kSmallWords;
}

void BatchPlan::choose_kernel() {
  const DataType from = what_.source_type.value_or(what_.type);
  const bool is_alone = what_.sources == 1;
  const KernelKind kind = is_alone ? KernelKind::kSum : kind_of(what_.op);
  prescaled_ = what_.prescaled;
  prescale_ = prescaled_ != 0 ? ready(from, what_.prescale) : Scale{};
  postscale_ = ready(what_.type, what_.postscale);
  if (prescale_.is_identity()) prescaled_ = 0;
  kernel_ = {kind, from, what_.type};
  source_size_ = static_cast<std::uint32_t>(size_of(from));
  target_size_ = static_cast<std::uint32_t>(size_of(what_.type));
  if (is_alone && from == what_.type && prescaled_ == 0 && postscale_.is_identity()) {
    kernel_ = {KernelKind::kCopy, DataType::kUInt8, DataType::kUInt8};
    units_ = source_size_;
    source_size_ = target_size_ = 1;
  } else if (what_.type == DataType::kBool) {
    const bool is_or = kind == KernelKind::kSum || kind == KernelKind::kMaximum;
    kernel_ = {is_or ? KernelKind::kMaximum : KernelKind::kMinimum, DataType::kUInt8,
               DataType::kUInt8};
  } else if (is_complex(what_.type) && kind == KernelKind::kSum) {
    const DataType part =
        what_.type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
    kernel_ = {kind, part, part};
    units_ = 2;
    source_size_ = target_size_ = source_size_ / 2;
  }
}

void BatchPlan::choose_tile(std::uint32_t processors) {
  std::uint64_t elements = 0;
  for (const std::uint64_t count : pieces_.counts) elements += count;
  const std::uint64_t size = std::max(source_size_, target_size_);
  const std::uint64_t share = elements * units_ * size / (processors * kTilesPerProcessor);
  tile_elements_ = static_cast<std::uint32_t>(
      std::bit_floor(std::clamp(share, kSmallestTile, kLargestTile)) / size);
}

}  // namespace kolo::cuda
