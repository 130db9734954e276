// Derives the rows, splits and complaint of one call. Pure; the user's thread.
#include "runtime/submission/prepare.h"

#include "runtime/base/check.h"
#include "runtime/base/overlap.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kolo {
namespace {

std::string list(const Splits& splits) { return fmt::format("[{}]", fmt::join(splits, ", ")); }

bool has_rows(OperationKind kind) {
  return is_row_wise(kind) || kind == OperationKind::kReduceScatter;
}

bool has_root(OperationKind kind) {
  return is_rooted(kind) || kind == OperationKind::kSend || kind == OperationKind::kReceive;
}

/// Fills in the splits of the rank that distributes its rows. Returns a sentence if they do not fit
/// the rows.
std::string deal(Splits& splits, std::int64_t rows, int size) {
  if (splits.empty()) {
    if (rows % size != 0) {
      return fmt::format(
          "the tensor's {} rows cannot be dealt evenly to {} ranks; give splits, one number of "
          "rows "
          "for each rank",
          rows, size);
    }
    splits.assign(static_cast<std::size_t>(size), rows / size);
    return {};
  }
  if (splits.size() != static_cast<std::size_t>(size)) {
    return fmt::format("splits {} are {} numbers for {} ranks; give one number of rows for each",
                       list(splits), splits.size(), size);
  }
  if (std::any_of(splits.begin(), splits.end(), [](std::int64_t rows_of) { return rows_of < 0; }))
    return fmt::format("splits {} hold a negative number of rows", list(splits));
  std::int64_t sum = 0;
  for (const std::int64_t rows_of : splits) {
    if (__builtin_add_overflow(sum, rows_of, &sum)) sum = std::numeric_limits<std::int64_t>::max();
  }
  if (sum == rows) return {};
  return fmt::format("splits {} add up to {} rows, but the tensor has {}", list(splits), sum, rows);
}

std::string prepare_rows(Entry& entry, const Communicator& communicator) {
  Signature& signature = entry.signature;
  if (signature.shape.empty()) {
    return fmt::format("{} takes rows, but the tensor is a scalar; give it a first dimension",
                       to_string(signature.kind));
  }
  if (signature.kind == OperationKind::kReduceScatter) return {};
  const std::int64_t rows = signature.shape.front();
  signature.shape.erase(signature.shape.begin());
  if (signature.kind == OperationKind::kAlltoall) {
    return deal(entry.splits, rows, communicator.size());
  }
  if (signature.kind == OperationKind::kScatter) {
    if (communicator.index_of(signature.root) == communicator.rank()) {
      return deal(entry.splits, rows, communicator.size());
    }
    entry.splits.clear();
    return {};
  }
  entry.splits = {rows};
  return {};
}

/// Rows that this rank reads from its input. 1 for other kinds, where the shape is that of the
/// whole.
std::int64_t rows_read(const Entry& entry) {
  if (!is_row_wise(entry.signature.kind)) return 1;
  return std::accumulate(entry.splits.begin(), entry.splits.end(), std::int64_t{0});
}

/// Whether the number of bytes fits into 64 bits. If an extent is 0, the number is 0.
bool is_countable(const Signature& signature) {
  const Shape& shape = signature.shape;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  auto bytes = static_cast<std::int64_t>(size_of(signature.type));
  return std::none_of(shape.begin(), shape.end(), [&](std::int64_t extent) {
    return __builtin_mul_overflow(bytes, extent, &bytes);
  });
}

bool lacks_memory(const Entry& entry) {
  const Signature& signature = entry.signature;
  if (!moves_data(signature.kind) || signature.elements() == 0) return false;
  const bool reads = signature.kind != OperationKind::kReceive && rows_read(entry) > 0;
  if (reads && entry.input == nullptr && !entry.absent) return true;
  const bool writes_as_much = signature.kind == OperationKind::kAllreduce ||
                              signature.kind == OperationKind::kBroadcast ||
                              signature.kind == OperationKind::kReceive;
  return writes_as_much && entry.output == nullptr;
}

/// The check_ functions return a sentence about what does not hold, or nothing. What would hinder
/// the checks after it is made harmless.
std::string check_shape(Signature& signature) {
  const auto is_negative = [](std::int64_t extent) { return extent < 0; };
  std::string complaint;
  if (std::any_of(signature.shape.begin(), signature.shape.end(), is_negative)) {
    complaint = fmt::format("shape {} is negative", to_string(signature.shape));
  } else if (moves_data(signature.kind) && !is_countable(signature)) {
    complaint = fmt::format("shape {} of {} is more bytes than there are addresses",
                            to_string(signature.shape), to_string(signature.type));
  }
  if (!complaint.empty()) signature.shape.clear();
  return complaint;
}

std::string check_root(const Signature& signature, const Communicator& communicator) {
  if (!has_root(signature.kind) || communicator.index_of(signature.root)) return {};
  if (signature.kind == OperationKind::kReceive && signature.root == kAnyRank) return {};
  const bool is_message =
      signature.kind == OperationKind::kSend || signature.kind == OperationKind::kReceive;
  const std::string_view who = is_message ? "peer" : "root";
  if (communicator.id() == 0) {
    return fmt::format("{} {} is no rank; ranks are 0 to {}", who, signature.root,
                       communicator.size() - 1);
  }
  return fmt::format("{} {} is not in process set {}, whose ranks are {}", who, signature.root,
                     communicator.id(), fmt::join(communicator.ranks(), ", "));
}

std::string check_factors(Signature& signature) {
  const double prescale = signature.prescale;
  const double postscale = signature.postscale;
  if (!std::isfinite(prescale) || !std::isfinite(postscale)) {
    // NaN equals nothing, not even itself, so the ranks' signatures would never match.
    signature.prescale = signature.postscale = 1.0;
    return fmt::format("prescale {} and postscale {} must be finite", prescale, postscale);
  }
  if (signature.type == DataType::kBool && (prescale != 1.0 || postscale != 1.0))
    return fmt::format("bool takes no prescale {} nor postscale {}", prescale, postscale);
  return {};
}

std::string check_reduction(const Signature& signature) {
  const bool is_reduce_scatter = signature.kind == OperationKind::kReduceScatter;
  if (signature.kind != OperationKind::kAllreduce && !is_reduce_scatter) return {};
  if (!is_supported(signature.type, signature.op)) {
    return fmt::format("{} is not defined on {}", to_string(signature.op),
                       to_string(signature.type));
  }
  if (is_reduce_scatter && signature.op == ReduceOp::kAdasum)
    return "adasum combines whole tensors; use allreduce";
  return {};
}

std::string check_memory(const Entry& entry) {
  if (lacks_memory(entry)) return "the memory is a null pointer";
  if (entry.signature.kind == OperationKind::kAllreduce &&
      are_shifted(entry.input, entry.output, entry.signature.bytes())) {
    return "its input and its output overlap; give an output of its own, or the input itself, "
           "which is in place";
  }
  return {};
}

/// The first complaint stays.
void complain(Entry& entry, std::string&& sentence) {
  if (!sentence.empty() && entry.complaint.empty()) entry.complaint = std::move(sentence);
}

}  // namespace

void prepare(Entry& entry, const Communicator& communicator) {
  complain(entry, check_shape(entry.signature));
  complain(entry, check_root(entry.signature, communicator));
  if (has_rows(entry.signature.kind)) complain(entry, prepare_rows(entry, communicator));
  complain(entry, check_factors(entry.signature));
  complain(entry, check_reduction(entry.signature));
  if (entry.complaint.empty()) complain(entry, check_memory(entry));
}

Error refusal_of(const Entry& entry, int rank) {
  return KOLO_ERROR(kInvalidArgument, "rank {}: {}: {}", rank, to_string(entry.signature.kind),
                    entry.complaint);
}

}  // namespace kolo
