#include "runtime/submission/entry.h"

#include "runtime/base/check.h"

namespace kolo {

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllreduce:
      return "allreduce";
    case OperationKind::kBroadcast:
      return "broadcast";
  }
  return "unknown operation";
}

SignatureDifference difference(const Signature& a, const Signature& b) {
  const auto text = [](auto value) { return std::string(to_string(value)); };
  if (a.kind != b.kind) return {"operation", text(a.kind), text(b.kind)};
  if (a.type != b.type) return {"type", text(a.type), text(b.type)};
  if (a.shape != b.shape) return {"shape", to_string(a.shape), to_string(b.shape)};
  if (a.op != b.op) return {"reduce operation", text(a.op), text(b.op)};
  if (a.root != b.root) return {"root", std::to_string(a.root), std::to_string(b.root)};
  if (a.prescale != b.prescale) {
    return {"prescale", fmt::format("{}", a.prescale), fmt::format("{}", b.prescale)};
  }
  KOLO_CHECK(a.postscale != b.postscale);
  return {"postscale", fmt::format("{}", a.postscale), fmt::format("{}", b.postscale)};
}

}  // namespace kolo
