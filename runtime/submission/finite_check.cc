#include "runtime/submission/finite_check.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace kolo {
namespace {

/// A word of 8 bytes holds one to four values. An exponent of ones is NaN or infinity.
struct Layout {
  std::size_t bytes = 0;       ///< a value has so many; 0: the type has no such values
  std::uint64_t exponent = 0;  ///< mask of the exponent of one value
  std::uint64_t lowest = 0;    ///< its lowest bit
};

Layout layout_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {2, 0x7C00, 0x0400};
    case DataType::kBFloat16:
      return {2, 0x7F80, 0x0080};
    case DataType::kFloat32:
    case DataType::kComplex64:
      return {4, 0x7F800000, 0x00800000};
    case DataType::kFloat64:
    case DataType::kComplex128:
      return {8, 0x7FF0000000000000, 0x0010000000000000};
    case DataType::kInt64:
    case DataType::kInt32:
    case DataType::kInt16:
    case DataType::kInt8:
    case DataType::kUInt8:
    case DataType::kBool:
      return {};
  }
  return {};
}

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t repeated(std::uint64_t bits, std::size_t bytes) {
  std::uint64_t word = 0;
  for (std::size_t at = 0; at < kWord; at += bytes) word |= bits << (8 * at);
  return word;
}

/// Adding the lowest bit to an exponent of ones carries into the place of the sign, which is masked
/// out before.
bool all_finite(const Layout& layout, const std::byte* data, std::size_t bytes) {
  const std::uint64_t exponents = repeated(layout.exponent, layout.bytes);
  const std::uint64_t lowest = repeated(layout.lowest, layout.bytes);
  const std::uint64_t signs = repeated(std::uint64_t{1} << (8 * layout.bytes - 1), layout.bytes);
  std::uint64_t carries = 0;
  std::size_t at = 0;
  for (; at + kWord <= bytes; at += kWord) {
    std::uint64_t word;
    std::memcpy(&word, data + at, kWord);
    carries |= (word & exponents) + lowest;
  }
  std::uint64_t rest = 0;
  if (at < bytes) std::memcpy(&rest, data + at, bytes - at);
  carries |= (rest & exponents) + lowest;
  return (carries & signs) == 0;
}

bool reduces(OperationKind kind) {
  return kind == OperationKind::kAllreduce || kind == OperationKind::kReduceScatter;
}

/// Whether infinity may be meant: it is where a search for the least or greatest begins.
bool takes_infinity(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

std::string described(const Submission& call, const NonFinite& found) {
  const Signature& signature = call.signature;
  const std::string part =
      call.part_at ? fmt::format(" in '{}'", call.part_at(found.first)) : std::string();
  return fmt::format(
      "its input of {} elements has {} NaN and {} infinite values, the first at "
      "element {}{}",
      signature.elements(), found.nans, found.infinities, found.first, part);
}

}  // namespace

NonFinite find_non_finite(DataType type, const std::byte* data, std::uint64_t elements) {
  const Layout layout = layout_of(type);
  NonFinite found;
  if (layout.bytes == 0 || elements == 0) return found;
  const std::uint64_t bytes = elements * size_of(type);
  if (all_finite(layout, data, bytes)) return found;
  const std::uint64_t mantissa = layout.lowest - 1;
  for (std::uint64_t at = bytes; at > 0;) {  // backwards, so that the first is found last
    at -= layout.bytes;
    std::uint64_t value = 0;
    std::memcpy(&value, data + at, layout.bytes);
    if ((value & layout.exponent) != layout.exponent) continue;
    ++((value & mantissa) != 0 ? found.nans : found.infinities);
    found.first = at / size_of(type);
  }
  return found;
}

std::string FiniteCheck::look(const Submission& call) {
  const Signature& signature = call.signature;
  if (!on() || !reduces(signature.kind) || call.absent || call.input == nullptr) return {};
  if (signature.on_device) {
    tell_of_device();
    return {};
  }
  const NonFinite found = find_non_finite(signature.type, call.input, signature.elements());
  if (found.nans == 0 && (found.infinities == 0 || takes_infinity(signature.op))) return {};
  std::string what = described(call, found);
  if (mode_ == Mode::kError)
    return what +
           "; KOLO_CHECK_FINITE=warn only reports it, as for gradients of a GradScaler, which "
           "overflow at times";
  warn(call, what);
  return {};
}

void FiniteCheck::warn(const Submission& call, const std::string& what) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_line_) {
    ++unsaid_;
    return;
  }
  const std::string before =
      unsaid_ == 0 ? std::string() : fmt::format(" ({} more calls since the last report)", unsaid_);
  log_.warning("{}{}: {}{}", to_string(call.signature.kind),
               call.name.empty() ? "" : fmt::format(" '{}'", call.name), what, before);
  next_line_ = now + kQuiet;
  unsaid_ = 0;
}

void FiniteCheck::tell_of_device() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_of_device_, true)) return;
  log_.warning("KOLO_CHECK_FINITE looks at host memory; what is in CUDA memory is not checked");
}

}  // namespace kolo
