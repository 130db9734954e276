#include "tests/gpu/device_check.h"

#include "runtime/base/check.h"
#include "runtime/device/element.h"
#include "tests/runtime/device/cuda/scene.h"

#include <cmath>

namespace kolo::gpu {
namespace {

using test::Lie;
using test::Scene;

/// One scene on the device and one on the host.
template <class C>
void check_scene(DeviceStream& stream, const Combination& what,
                 const std::vector<std::uint64_t>& counts, Lie lie, bool in_place,
                 Verdicts& verdicts) {
  std::mt19937 random(17);
  Scene scene(sizeof(typename C::Memory), what, counts, lie, in_place);
  scene.fill<C>(random);
  Scene wanted = scene;
  std::memcpy(wanted.begin(), scene.begin(), scene.bytes());
  wanted.combine_on_host();
  const std::string name =
      fmt::format("{} {}, {} to {}, lie {}, {}", to_string(what.type), to_string(what.op),
                  what.sources, what.destinations, static_cast<int>(lie),
                  what.postscale.is_identity() ? "unscaled" : "scaled");
  const auto memory = stream.accelerator().allocate(scene.bytes());
  if (!verdicts.succeeds(memory, name)) return;
  std::byte* const base = (*memory)->bytes().data();
  const auto run = [&]() -> Status {
    KOLO_TRY(stream.copy(base, scene.begin(), scene.bytes()));
    KOLO_TRY(stream.combine(what, scene.pieces(base)));
    KOLO_TRY(stream.copy(scene.begin(), base, scene.bytes()));
    KOLO_ASSIGN(const auto done, stream.record());
    return done->synchronize();
  };
  if (!verdicts.succeeds(run(), name)) return;
  verdicts.expect(std::memcmp(scene.begin(), wanted.begin(), scene.bytes()) == 0, name);
}

template <class C>
void check_type(DeviceStream& stream, bool is_quick, Verdicts& verdicts) {
  const std::vector<std::uint64_t> few = {1, 0, 3, 7, 15, 16, 17, 31, 64, 0, 100, 1001, 5003};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (!is_supported(C::kType, op)) continue;
    for (const std::uint32_t sources : {1U, 2U, 4U, 8U}) {
      for (const Lie lie : {Lie::kAligned, Lie::kAlike, Lie::kApart}) {
        Combination what{.type = C::kType, .op = op, .sources = sources, .destinations = 2};
        check_scene<C>(stream, what, few, lie, true, verdicts);
        if (C::kType == DataType::kBool) continue;
        what.prescaled = 0b10100101 & ((1U << sources) - 1);
        what.prescale = {.factor = 0.75, .divisor = 2};
        what.postscale = {.factor = 0.7, .divisor = 3};
        check_scene<C>(stream, what, few, lie, true, verdicts);
      }
    }
  }
  std::vector<std::uint64_t> many;
  for (std::uint64_t i = 0; i < (is_quick ? 400 : 5000); ++i) many.push_back(i * 7 % 71);
  check_scene<C>(stream, {.type = C::kType, .sources = 2}, many, Lie::kAlike, true, verdicts);
  check_scene<C>(stream, {.type = C::kType}, many, Lie::kApart, false, verdicts);
  if (!is_quick)
    check_scene<C>(stream, {.type = C::kType, .sources = 3}, {5'000'001}, Lie::kAlike, false,
                   verdicts);
}

template <class... Cs>
struct Types {
  static void check(DeviceStream& stream, bool is_quick, Verdicts& verdicts) {
    (check_type<Cs>(stream, is_quick, verdicts), ...);
  }
};
using AllTypes =
    Types<test::Float32, test::Float64, test::BFloat16, test::Float16, test::Int64, test::Int32,
          test::Int16, test::Int8, test::UInt8, test::Bool, test::Complex64, test::Complex128>;

/// Casts all half numbers to float32 and back: NaNs stay NaNs, all others keep their bits.
void check_casts(DeviceStream& stream, DataType half, Verdicts& verdicts) {
  constexpr std::uint64_t kCount = 65536;
  const std::string name = fmt::format("{} to float32 and back", to_string(half));
  std::vector<std::uint16_t> numbers(kCount);
  for (std::size_t i = 0; i < kCount; ++i) numbers[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> back(kCount);
  const auto run = [&]() -> Status {
    KOLO_ASSIGN(const auto memory, stream.accelerator().allocate(kCount * 8));
    std::byte* const base = memory->bytes().data();
    std::byte* const wide = base + 2 * kCount;
    std::byte* const narrow = base + 6 * kCount;
    const std::byte* const from = base;
    const std::byte* const through = wide;
    KOLO_TRY(stream.copy(base, reinterpret_cast<std::byte*>(numbers.data()), 2 * kCount));
    KOLO_TRY(stream.combine({.type = DataType::kFloat32, .source_type = half},
                            {{&from, 1}, {&wide, 1}, {&kCount, 1}}));
    KOLO_TRY(stream.combine({.type = half, .source_type = DataType::kFloat32},
                            {{&through, 1}, {&narrow, 1}, {&kCount, 1}}));
    KOLO_TRY(stream.copy(reinterpret_cast<std::byte*>(back.data()), narrow, 2 * kCount));
    KOLO_ASSIGN(const auto done, stream.record());
    return done->synchronize();
  };
  if (!verdicts.succeeds(run(), name)) return;
  int wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto number = half == DataType::kFloat16 ? float_of_float16 : float_of_bfloat16;
    const bool is_nan = std::isnan(number(numbers[i]));
    if (is_nan ? !std::isnan(number(back[i])) : back[i] != numbers[i]) ++wrong;
  }
  verdicts.expect(wrong == 0, fmt::format("{}: {} of them", name, wrong));
}

void check_adasum(DeviceStream& stream, DataType type, std::size_t count, Verdicts& verdicts) {
  const std::string name = fmt::format("adasum of {} {}", count, to_string(type));
  const std::size_t bytes = count * size_of(type);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<std::byte> a(bytes);
  std::vector<std::byte> b(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    store_element(type, a.data() + i * size_of(type), normal(random));
    store_element(type, b.data() + i * size_of(type), normal(random));
  }
  std::vector<std::byte> wanted(bytes);
  std::vector<std::byte> results[2] = {wanted, wanted};
  host_device().adasum(type, wanted.data(), a.data(), b.data(), count);
  const auto run = [&](std::vector<std::byte>& result) -> Status {
    KOLO_ASSIGN(const auto memory, stream.accelerator().allocate(2 * bytes));
    std::byte* const base = memory->bytes().data();
    KOLO_TRY(stream.copy(base, a.data(), bytes));
    KOLO_TRY(stream.copy(base + bytes, b.data(), bytes));
    KOLO_TRY(stream.adasum(type, base, base, base + bytes, count));
    KOLO_TRY(stream.copy(result.data(), base, bytes));
    KOLO_ASSIGN(const auto done, stream.record());
    return done->synchronize();
  };
  for (auto& result : results)
    if (!verdicts.succeeds(run(result), name)) return;
  verdicts.expect(results[0] == results[1], name + ": equal bits from equal calls");
  const double tolerance = type == DataType::kFloat64   ? 1e-12
                           : type == DataType::kFloat32 ? 1e-6
                                                        : 1e-2;
  int wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = load_element(type, wanted.data() + i * size_of(type));
    const double y = load_element(type, results[0].data() + i * size_of(type));
    if (!(std::abs(x - y) <= tolerance * (1 + std::abs(x)))) ++wrong;
  }
  verdicts.expect(wrong == 0, fmt::format("{}: {} of them", name, wrong));
}

}  // namespace

void check_operations(Accelerator& accelerator, bool is_quick, Verdicts& verdicts) {
  const auto stream = accelerator.new_stream();
  if (!verdicts.succeeds(stream, "a stream")) return;
  AllTypes::check(**stream, is_quick, verdicts);
  check_casts(**stream, DataType::kFloat16, verdicts);
  check_casts(**stream, DataType::kBFloat16, verdicts);
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16})
    for (const std::size_t count : {1UL, 1000UL, is_quick ? 5000UL : 3'000'001UL})
      check_adasum(**stream, type, count, verdicts);
}

}  // namespace kolo::gpu
