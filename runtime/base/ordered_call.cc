#include "runtime/base/ordered_call.h"

#include <fmt/format.h>

namespace kolo {
namespace {

constexpr int kCountBits = 34;
constexpr int kRootBits = 12;
constexpr int kOpBits = 3;
constexpr int kTypeBits = 4;
constexpr int kCountShift = CallHistory::kBits;
constexpr int kRootShift = kCountShift + kCountBits;
constexpr int kOpShift = kRootShift + kRootBits;
constexpr int kTypeShift = kOpShift + kOpBits;
constexpr int kKindShift = kTypeShift + kTypeBits;
static_assert(static_cast<int>(OperationKind::kBarrier) < 1 << (64 - kKindShift));
static_assert(kDataTypeCount <= 1 << kTypeBits && kReduceOpCount <= 1 << kOpBits);

constexpr std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

/// A hint for two ranks whose calls differ: whether an earlier call failed on one of them alone.
std::string_view history_of(std::uint64_t fingerprint, std::uint64_t others) {
  const bool has_one = fingerprint != kRefusedCall && others != kRefusedCall;
  return has_one && (fingerprint ^ others) % 2 != 0
             ? "; a call before had failed at once on one of them, for its arguments"
             : "";
}

}  // namespace

std::uint64_t call_fingerprint(OperationKind kind, DataType type, ReduceOp op, int root,
                               std::uint64_t count, std::uint64_t before) {
  return (before & CallHistory::kMask) | (count & mask(kCountBits)) << kCountShift |
         (static_cast<std::uint64_t>(root) & mask(kRootBits)) << kRootShift |
         static_cast<std::uint64_t>(op) << kOpShift |
         static_cast<std::uint64_t>(type) << kTypeShift |
         static_cast<std::uint64_t>(kind) << kKindShift;
}

std::string to_text(std::uint64_t fingerprint) {
  if (fingerprint == kRefusedCall) return "what failed there at once, for its arguments";
  const auto kind = static_cast<OperationKind>(fingerprint >> kKindShift);
  std::string text(to_string(kind));
  if (kind == OperationKind::kBarrier) return text;
  text +=
      fmt::format(" of {} {}", fingerprint >> kCountShift & mask(kCountBits),
                  to_string(static_cast<DataType>(fingerprint >> kTypeShift & mask(kTypeBits))));
  if (is_rooted(kind))
    text += fmt::format(" {} rank {}", kind == OperationKind::kGather ? "to" : "from",
                        fingerprint >> kRootShift & mask(kRootBits));
  if (kind == OperationKind::kAllreduce || kind == OperationKind::kReduceScatter)
    text += fmt::format(" by {}",
                        to_string(static_cast<ReduceOp>(fingerprint >> kOpShift & mask(kOpBits))));
  return text;
}

std::string clash_text(int rank, std::uint64_t fingerprint, int other, std::uint64_t others,
                       std::string_view suffix) {
  const std::string own_text = to_text(fingerprint);
  const std::string others_text = to_text(others);
  if (own_text == others_text) {
    return fmt::format("rank {} and rank {} both call {}{}, but not after the same calls{}: {}",
                       rank, other, own_text, suffix, history_of(fingerprint, others),
                       kSameCallsAdvice);
  }
  return fmt::format("rank {} calls {} where rank {} calls {}{}{}: {}", rank, own_text, other,
                     others_text, suffix, history_of(fingerprint, others), kSameCallsAdvice);
}

}  // namespace kolo
