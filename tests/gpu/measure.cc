#include "tests/gpu/device_check.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

namespace kolo::gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kBytes = std::size_t{256} << 20;

/// Seconds per `work`, with `times` of them on the stream: the best of some rounds.
Result<double> seconds_of(DeviceStream& stream, int times, const std::function<Status()>& work) {
  double best = 1e9;
  for (int round = 0; round < 6; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) KOLO_TRY(work());
    KOLO_ASSIGN(const auto done, stream.record());
    KOLO_TRY(done->synchronize());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / times;
    if (round > 0) best = std::min(best, seconds);  // the first warms up
  }
  return best;
}

/// Sizes as of a network's gradients: from a few elements to millions, in elements of `size` bytes.
std::vector<std::uint64_t> tensors(std::size_t size) {
  std::mt19937 random(1);
  std::vector<std::uint64_t> counts;
  std::size_t left = kBytes / size;
  while (left > 0) {
    const std::uint64_t most = std::uint64_t{16} << random() % 17;
    counts.push_back(std::min<std::uint64_t>(left, most + random() % most));
    left -= counts.back();
  }
  return counts;
}

struct Placed {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  PieceList pieces(const std::vector<std::uint64_t>& counts) const {
    return {sources, destinations, counts};
  }
};

Status measure_all(Accelerator& accelerator, Rates& rates) {
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_ASSIGN(const auto apart, accelerator.allocate(2 * kBytes));
  KOLO_ASSIGN(const auto packed, accelerator.allocate(2 * kBytes));
  constexpr std::size_t kSources = 8;
  KOLO_ASSIGN(const auto ranks, accelerator.allocate(kSources * kBytes));
  std::byte* const packed_base = packed->bytes().data();
  std::byte* const ranks_base = ranks->bytes().data();

  KOLO_ASSIGN(const double copied, seconds_of(*stream, 20, [&] {
                return stream->copy(packed_base, ranks_base, kBytes);
              }));
  rates.copy_bytes_per_second = 2 * static_cast<double>(kBytes) / copied;
  // `moved`: bytes read and written.
  const auto share = [&](const std::string& name, double moved, const Combination& what,
                         const PieceList& pieces) -> Status {
    KOLO_ASSIGN(const double seconds,
                seconds_of(*stream, 20, [&] { return stream->combine(what, pieces); }));
    rates.shares[name] = moved / seconds / rates.copy_bytes_per_second;
    return {};
  };

  // Packs and unpacks thousands of tensors that lie apart as an allocator places them. In the
  // buffer they lie at multiples of 16 bytes, or without gaps, where wide instructions seldom fit.
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const std::size_t size = size_of(type);
    for (const std::size_t alignment : {std::size_t{16}, size}) {
      const auto counts = tensors(size);
      Placed pack;
      Placed unpack;
      std::size_t offset = 0;
      std::size_t place = 0;
      double moved = 0;
      for (const std::uint64_t count : counts) {
        std::byte* const tensor = apart->bytes().data() + place;
        std::byte* const slot = packed->bytes().data() + offset;
        pack.sources.push_back(tensor);
        pack.destinations.push_back(slot);
        unpack.sources.push_back(slot);
        unpack.destinations.push_back(tensor);
        moved += 2 * static_cast<double>(count * size);
        offset += (count * size + alignment - 1) / alignment * alignment;
        place += (count * size + 511) / 512 * 512;
      }
      const std::string of = fmt::format(" {} {}{}", counts.size(), to_string(type),
                                         alignment == 16 ? "" : ", no gaps");
      KOLO_TRY(share("pack" + of, moved, {.type = type}, pack.pieces(counts)));
      KOLO_TRY(share("unpack, scaled," + of, moved,
                     {.type = type, .postscale = {.factor = 0.5, .divisor = 1}},
                     unpack.pieces(counts)));
    }
  }
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
                              DataType::kInt32, DataType::kFloat64}) {
    for (const std::uint32_t sources : {2U, 4U, 8U}) {
      Placed placed;
      for (std::uint32_t k = 0; k < sources; ++k) placed.sources.push_back(ranks_base + k * kBytes);
      placed.destinations.push_back(packed_base);
      const std::vector<std::uint64_t> counts = {kBytes / size_of(type)};
      KOLO_TRY(share(fmt::format("reduce {} {}", sources, to_string(type)),
                     (sources + 1.0) * static_cast<double>(kBytes),
                     {.type = type, .sources = sources}, placed.pieces(counts)));
    }
  }
  const std::byte* const from = ranks_base;
  const std::uint64_t floats = kBytes / 4;
  KOLO_TRY(share("cast float32 to bfloat16", 1.5 * static_cast<double>(kBytes),
                 {.type = DataType::kBFloat16, .source_type = DataType::kFloat32},
                 {{&from, 1}, {&packed_base, 1}, {&floats, 1}}));
  const std::uint64_t few = 256;
  KOLO_ASSIGN(rates.launch_seconds, seconds_of(*stream, 1000, [&] {
                return stream->combine({.type = DataType::kFloat32, .postscale = {.factor = 2}},
                                       {{&from, 1}, {&packed_base, 1}, {&few, 1}});
              }));
  return {};
}

}  // namespace

Rates measure(Accelerator& accelerator, Verdicts& verdicts) {
  Rates rates;
  verdicts.succeeds(measure_all(accelerator, rates), "rates");
  return rates;
}

}  // namespace kolo::gpu
