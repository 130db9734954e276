#include "tests/bindings/core/stress/values.h"

#include "runtime/device/element.h"

#include <kolo/kolo.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace kolo::test {
namespace {

/// Prime, so that data that is off by a block does not look right.
constexpr std::int64_t kPeriod = 251;
constexpr std::size_t kGuard = 64;
constexpr auto kGuardByte = std::byte{0xA5};

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double part(const Step& step, std::uint64_t bits) {
  if (step.type == DataType::kBool) return static_cast<double>(bits % 2);
  if (step.op == ReduceOp::kProduct) {
    const double factors[] = {1, 2, -1};
    return factors[bits % (is_signed(step.type) ? 3 : 2)];
  }
  // Sums of these are exact in float32, and mostly rounded in the half type itself.
  if (step.type == DataType::kFloat16) return static_cast<double>(bits % 4096) - 2047;
  if (step.type == DataType::kBFloat16) return static_cast<double>(bits % 512) - 255;
  return static_cast<double>(bits % 8) - (is_signed(step.type) ? 3 : 0);
}

void store(DataType type, std::byte* to, Value value) {
  if (!is_complex(type)) return store_element(type, to, value.real());
  const DataType half = type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
  store_element(half, to, value.real());
  store_element(half, to + size_of(half), value.imag());
}

Value load(DataType type, const std::byte* from) {
  if (!is_complex(type)) return load_element(type, from);
  const DataType half = type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
  return {load_element(half, from), load_element(half, from + size_of(half))};
}

/// As device.h says: integers truncate; other types multiply by a rounded factor.
Value divided(DataType type, Value sum, int divisor) {
  if (is_integer(type)) return std::trunc(sum.real() / divisor);
  const double factor = 1.0 / divisor;
  if (type == DataType::kFloat64 || type == DataType::kComplex128) return sum * factor;
  const auto product = [&](double part_of_sum) {
    return static_cast<double>(static_cast<float>(part_of_sum) * static_cast<float>(factor));
  };
  return {product(sum.real()), product(sum.imag())};
}

std::vector<std::byte> period_of(DataType type, const ValueOf& values) {
  const std::size_t width = size_of(type);
  std::vector<std::byte> period(kPeriod * width);
  for (std::int64_t i = 0; i < kPeriod; ++i)
    store(type, period.data() + static_cast<std::size_t>(i) * width, values(i));
  return period;
}

struct SharedBlocks {
  std::mutex mutex;
  std::map<void*, std::size_t> bytes;
};

SharedBlocks& all_shared() {
  // Never destroyed: exit() ends kolo after the program's own objects, and blocks end with kolo.
  static SharedBlocks& all = *new SharedBlocks;
  return all;
}

/// kolo::allocate(), which shared_blocks() knows.
std::shared_ptr<void> allocate_known(std::size_t bytes) {
  const auto memory = kolo::allocate(bytes);
  if (!memory) return nullptr;
  const std::lock_guard lock(all_shared().mutex);
  all_shared().bytes[memory.get()] = bytes;
  return {memory.get(), [memory](void* at) {
            const std::lock_guard guard(all_shared().mutex);
            all_shared().bytes.erase(at);
          }};
}

/// Calls piece(offset in the memory, offset in the period, elements) until all is covered.
template <class Piece>
void in_pieces(std::int64_t count, std::int64_t first, Piece&& piece) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (first + done) % kPeriod;
    const std::int64_t elements = std::min(kPeriod - at, count - done);
    piece(static_cast<std::size_t>(done), static_cast<std::size_t>(at),
          static_cast<std::size_t>(elements));
    done += elements;
  }
}

}  // namespace

Shape shape_of(const Step& step, std::int64_t rows) {
  Shape shape = step.tail;
  if (rows != 1 || !shape.empty()) shape.insert(shape.begin(), rows);
  return shape;
}

Value input_value(const Step& step, int rank, std::int64_t element) {
  // Adasum of equal vectors is that vector, exactly.
  const int by = step.act == Act::kAllreduce && step.op == ReduceOp::kAdasum ? 0 : rank;
  const std::uint64_t bits =
      mixed(step.salt +
            0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(by * kPeriod + element % kPeriod + 1));
  const bool has_imaginary = is_complex(step.type) && step.op != ReduceOp::kProduct;
  return {part(step, bits), has_imaginary ? part(step, bits >> 20) : 0.0};
}

Value reduced_value(const Step& step, const std::vector<int>& contributors, int divisor,
                    std::int64_t element) {
  if (step.op == ReduceOp::kAdasum) return input_value(step, 0, element);
  std::vector<Value> values;
  for (const int rank : contributors)
    values.push_back(input_value(step, rank, element) * step.prescale);
  Value result = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Value next = values[i];
    switch (step.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += next;
        break;
      case ReduceOp::kMin:
        result = std::min(result.real(), next.real());
        break;
      case ReduceOp::kMax:
        result = std::max(result.real(), next.real());
        break;
      case ReduceOp::kProduct:
        result *= next;
        break;
      case ReduceOp::kAdasum:
        break;
    }
  }
  if (step.op == ReduceOp::kAverage) {
    result = divided(step.type, result, divisor);
  }
  result *= step.postscale;
  return step.type == DataType::kBool ? Value(result.real() != 0 ? 1 : 0) : result;
}

void fill(std::byte* to, DataType type, std::int64_t count, std::int64_t first,
          const ValueOf& values) {
  if (count == 0) return;
  const std::size_t width = size_of(type);
  const auto period = period_of(type, values);
  in_pieces(count, first, [&](std::size_t done, std::size_t at, std::size_t elements) {
    std::memcpy(to + done * width, period.data() + at * width, elements * width);
  });
}

std::string compare(const std::byte* found, DataType type, std::int64_t count, std::int64_t first,
                    const ValueOf& values) {
  if (count == 0) return {};
  const std::size_t width = size_of(type);
  const auto period = period_of(type, values);
  std::string wrong;
  int differ = 0;
  in_pieces(count, first, [&](std::size_t done, std::size_t at, std::size_t elements) {
    if (std::memcmp(found + done * width, period.data() + at * width, elements * width) == 0)
      return;
    for (std::size_t i = 0; i < elements; ++i) {
      const Value here = load(type, found + (done + i) * width);
      const Value expected = load(type, period.data() + (at + i) * width);
      if (here == expected) continue;  // −0 is 0
      if (++differ == 1) {
        wrong = fmt::format("element {} of {} is {}+{}i instead of {}+{}i", done + i, count,
                            here.real(), here.imag(), expected.real(), expected.imag());
      }
    }
  });
  return differ > 1 ? fmt::format("{}, and {} more differ", wrong, differ - 1) : wrong;
}

Block::Block(std::size_t bytes, std::size_t alignment, Dice& dice, perf::Gpu* gpu)
    : bytes_(bytes), gpu_(gpu) {
  const std::size_t shift =
      dice.one_in(2) ? 0 : alignment * static_cast<std::size_t>(dice.below(8));
  const std::size_t whole = bytes + 2 * kGuard + shift;
  const auto shared_or = [&](auto&& shared, auto&& own) -> std::shared_ptr<void> {
    if (!dice.one_in(2)) return own();
    try {
      if (auto memory = shared(whole)) return memory;
    } catch (const Exception& error) {
      if (error.code() != ErrorCode::kOutOfMemory)
        throw;  // beyond KOLO_ARENA; a device has none then
    }
    return own();
  };
  const auto of_host = [&]() -> std::shared_ptr<void> {
    return {std::aligned_alloc(64, (whole + 63) / 64 * 64), std::free};
  };
  memory_ = gpu == nullptr ? shared_or(allocate_known, of_host) : of_host();
  data_ = static_cast<std::byte*>(memory_.get()) + kGuard + shift;
  std::fill(data_ - kGuard, data_ + bytes + kGuard, kGuardByte);
  if (gpu == nullptr) return;
  auto on_gpu = shared_or(kolo::allocate_on_device, [&] { return gpu->allocate(whole); });
  on_gpu_ = static_cast<std::byte*>(on_gpu.get()) + kGuard + shift;
  using Both = std::pair<std::shared_ptr<void>, std::shared_ptr<void>>;
  memory_ = std::make_shared<Both>(memory_, on_gpu);
}

void Block::push() const {
  if (gpu_ != nullptr) gpu_->copy(on_gpu_ - kGuard, data_ - kGuard, bytes_ + 2 * kGuard);
}

void Block::pull() const {
  if (gpu_ == nullptr) return;
  gpu_->copy(data_ - kGuard, on_gpu_ - kGuard, bytes_ + 2 * kGuard);
  gpu_->synchronize();
}

ScribblingChild::Memory shared_blocks() {
  const std::lock_guard lock(all_shared().mutex);
  ScribblingChild::Memory blocks;
  for (const auto& [at, bytes] : all_shared().bytes)
    blocks.emplace_back(static_cast<std::byte*>(at), bytes);
  return blocks;
}

std::string Block::damage() const {
  const auto is_whole = [](const std::byte* guard) {
    return std::all_of(guard, guard + kGuard, [](std::byte byte) { return byte == kGuardByte; });
  };
  if (!is_whole(data_ - kGuard)) return "memory before it was written";
  if (!is_whole(data_ + bytes_)) return "memory behind it was written";
  return {};
}

}  // namespace kolo::test
