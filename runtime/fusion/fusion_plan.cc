#include "runtime/fusion/fusion_plan.h"

#include <algorithm>

namespace kolo {
namespace {

bool can_share(const Response& x, const Response& y) {
  const Signature& a = x.signature;
  const Signature& b = y.signature;
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.on_device == b.on_device &&
         x.participants == y.participants;
}

struct OpenGroup {
  const Response* first;
  std::size_t index;  ///< into `groups`
  std::uint64_t bytes;
};

}  // namespace

std::vector<FusedGroup> plan_fusion(const std::vector<const Response*>& responses,
                                    const FusionLimits& limits) {
  std::vector<FusedGroup> groups;
  std::vector<OpenGroup> open;
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const Response& response = *responses[i];
    if (!response.runs()) continue;
    const Signature& signature = response.signature;
    const std::uint64_t bytes = signature.bytes();
    const bool can_fuse =
        signature.kind == OperationKind::kAllreduce && signature.op != ReduceOp::kAdasum;
    if (!can_fuse || weight_of(bytes, signature.on_device) >= limits.max_tensor) {
      groups.push_back({i});
      continue;
    }
    const auto group = std::find_if(open.begin(), open.end(), [&](const OpenGroup& candidate) {
      return can_share(*candidate.first, response);
    });
    if (group == open.end()) {
      open.push_back({&response, groups.size(), bytes});
      groups.push_back({i});
    } else if (group->bytes + bytes > limits.threshold) {
      *group = {&response, groups.size(), bytes};
      groups.push_back({i});
    } else {
      group->bytes += bytes;
      groups[group->index].push_back(i);
    }
  }
  return groups;
}

}  // namespace kolo
