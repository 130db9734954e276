#include "tests/runtime/device/cuda/played_device.h"

#include "runtime/base/check.h"
#include "runtime/device/cuda/adasum.h"
#include "runtime/device/cuda/batch_plan.h"
#include "runtime/device/cuda/tile.h"

#include <cstring>
#include <memory>
#include <vector>

namespace kolo::test {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): the simulated kernels

template <class Work, class AnyBatch>
void play(const AnyBatch& batch) {
  for (std::uint32_t tile = 0; tile < batch.tiles; ++tile)
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      run_tile<Work>(batch, tile, thread, kThreads);
}

/// Cuts off a batch that fits into the kernel's small parameters.
template <class Work>
void play_batch(const LargeBatch& batch) {
  if (!BatchPlan::is_small(batch)) return play<Work>(batch);
  SmallBatch small;
  std::memcpy(static_cast<void*>(&small), &batch, sizeof(small));
  play<Work>(small);
}

template <class Element>
void play_kind(KernelKind kind, const LargeBatch& batch) {
  if (kind == KernelKind::kSum) return play_batch<Combine<Element, Element, Sum>>(batch);
  if (kind == KernelKind::kMinimum) return play_batch<Combine<Element, Element, Minimum>>(batch);
  if (kind == KernelKind::kMaximum) return play_batch<Combine<Element, Element, Maximum>>(batch);
  KOLO_CHECK(kind == KernelKind::kProduct);
  play_batch<Combine<Element, Element, Product>>(batch);
}

template <class Source, class Target>
void play_cast_of(KernelKind kind, const LargeBatch& batch) {
  if (kind == KernelKind::kProduct) return play_batch<Combine<Source, Target, Product>>(batch);
  play_batch<Combine<Source, Target, Sum>>(batch);
}

void play_cast(const KernelKey& key, const LargeBatch& batch) {
  const auto is = [&](DataType source, DataType target) {
    return key.source == source && key.target == target;
  };
  if (is(DataType::kFloat32, DataType::kFloat16))
    return play_cast_of<Real<float>, Float16>(key.kind, batch);
  if (is(DataType::kFloat32, DataType::kBFloat16))
    return play_cast_of<Real<float>, BFloat16>(key.kind, batch);
  if (is(DataType::kFloat16, DataType::kFloat32))
    return play_cast_of<Float16, Real<float>>(key.kind, batch);
  KOLO_CHECK(is(DataType::kBFloat16, DataType::kFloat32));
  play_cast_of<BFloat16, Real<float>>(key.kind, batch);
}

void play_key(const KernelKey& key, const LargeBatch& batch) {
  if (key.kind == KernelKind::kCopy) return play_batch<Copy>(batch);
  if (key.source != key.target) return play_cast(key, batch);
  switch (key.source) {
    case DataType::kFloat32:
      return play_kind<Real<float>>(key.kind, batch);
    case DataType::kFloat64:
      return play_kind<Real<double>>(key.kind, batch);
    case DataType::kFloat16:
      return play_kind<Float16>(key.kind, batch);
    case DataType::kBFloat16:
      return play_kind<BFloat16>(key.kind, batch);
    case DataType::kInt64:
      return play_kind<Integer<std::int64_t>>(key.kind, batch);
    case DataType::kInt32:
      return play_kind<Integer<std::int32_t>>(key.kind, batch);
    case DataType::kInt16:
      return play_kind<Integer<std::int16_t>>(key.kind, batch);
    case DataType::kInt8:
      return play_kind<Integer<std::int8_t>>(key.kind, batch);
    case DataType::kUInt8:
      return play_kind<Integer<std::uint8_t>>(key.kind, batch);
    case DataType::kComplex64:
      KOLO_CHECK(key.kind == KernelKind::kProduct);
      return play_batch<Combine<Complex<float>, Complex<float>, Product>>(batch);
    case DataType::kComplex128:
      KOLO_CHECK(key.kind == KernelKind::kProduct);
      return play_batch<Combine<Complex<double>, Complex<double>, Product>>(batch);
    case DataType::kBool:
      break;
  }
  KOLO_CHECK(false);
}

Dots sum_of(std::vector<Dots> dots) {
  dots.resize(kThreads);
  for (std::uint32_t half = kThreads / 2; half > 0; half /= 2)
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      add_halves(dots.data(), half, thread);
  return dots[0];
}

template <class Element>
void play_adasum_of(const AdasumCall& call) {
  std::vector<Dots> parts;
  for (std::uint32_t block = 0; block < call.dot_blocks; ++block) {
    std::vector<Dots> mine;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      mine.push_back(dots_of_thread<Element>(call, block, thread));
    parts.push_back(sum_of(std::move(mine)));
  }
  const AdasumFactors factors = adasum_factors(sum_of(std::move(parts)));
  const std::uint32_t blocks = combining_blocks(call.count);
  for (std::uint32_t block = 0; block < blocks; ++block)
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      combine_of_thread<Element>(call, factors, block, blocks, thread);
}

}  // namespace

Result<int> play_combine(const Combination& what, const PieceList& pieces,
                         std::uint32_t processors) {
  BatchPlan plan(what, pieces, processors);
  KOLO_TRY(plan.check());
  const auto batch = std::make_unique<LargeBatch>();
  int launches = 0;
  while (plan.next(*batch, kLargeWords)) {
    play_key(plan.kernel(), *batch);
    ++launches;
  }
  return launches;
}

void play_adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                 std::size_t count) {
  const AdasumCall call{.destination = reinterpret_cast<std::uint64_t>(destination),
                        .a = reinterpret_cast<std::uint64_t>(a),
                        .b = reinterpret_cast<std::uint64_t>(b),
                        .count = count,
                        .dots = 0,
                        .dot_blocks = dot_blocks(count)};
  if (type == DataType::kFloat32) return play_adasum_of<Real<float>>(call);
  if (type == DataType::kFloat64) return play_adasum_of<Real<double>>(call);
  if (type == DataType::kFloat16) return play_adasum_of<Float16>(call);
  KOLO_CHECK(type == DataType::kBFloat16);
  play_adasum_of<BFloat16>(call);
}

}  // namespace kolo::test
