// Names of operations, and differences between signatures. Pure; called by the submission and
// negotiation stages.
#include "runtime/submission/entry.h"

#include "runtime/base/check.h"

#include <numeric>

namespace kolo {

SignatureDifference difference(const Signature& a, const Signature& b) {
  const auto text = [](auto value) { return std::string(to_string(value)); };
  const auto group = [](const Signature& s) {
    return s.group.empty() ? std::string("none")
                           : fmt::format("'{}' of {} members", s.group, s.group_size);
  };
  if (a.kind != b.kind) return {"operation", text(a.kind), text(b.kind)};
  if (a.type != b.type) return {"type", text(a.type), text(b.type)};
  if (a.shape != b.shape) {
    return {is_row_wise(a.kind) ? "row shape" : "shape", to_string(a.shape), to_string(b.shape)};
  }
  if (a.op != b.op) return {"reduce operation", text(a.op), text(b.op)};
  if (a.root != b.root) return {"root", std::to_string(a.root), std::to_string(b.root)};
  if (a.prescale != b.prescale) {
    return {"prescale", fmt::format("{}", a.prescale), fmt::format("{}", b.prescale)};
  }
  if (a.postscale != b.postscale) {
    return {"postscale", fmt::format("{}", a.postscale), fmt::format("{}", b.postscale)};
  }
  if (a.on_device != b.on_device) {
    const auto memory = [](const Signature& s) {
      return s.on_device ? "a CUDA device's" : "the host's";
    };
    return {"memory", memory(a), memory(b)};
  }
  KOLO_CHECK(a.group != b.group || a.group_size != b.group_size);
  return {"group", group(a), group(b)};
}

std::uint64_t Entry::bytes() const {
  if (!is_row_wise(signature.kind)) return signature.bytes();
  const auto rows = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  return static_cast<std::uint64_t>(rows) * signature.bytes();
}

}  // namespace kolo
