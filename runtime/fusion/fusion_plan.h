// The fusion plan: which agreed tensors are sent together. A pure function of the list that all
// ranks share, so every rank makes the same plan.
#pragma once

#include "runtime/negotiation/wire.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

struct FusionLimits {
  std::uint64_t threshold = 32 << 20;  ///< largest fused group, in bytes
  std::uint64_t max_tensor = 1 << 20;  ///< a tensor of this weight or more is not fused
};

/// Indices of the responses to run as one operation. A single tensor runs in its own memory.
using FusedGroup = std::vector<std::size_t>;

/// Groups all-reduces with the same type, operation, factors and number of participants. Every
/// other response is a group of its own. Responses that failed or that no rank contributes to are
/// in no group. A group has the position of its first tensor. Precondition: the tensors of all
/// responses are contiguous.
std::vector<FusedGroup> plan_fusion(const std::vector<const Response*>& responses,
                                    const FusionLimits& limits);

}  // namespace kolo
