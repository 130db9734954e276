// Fusion plan: which agreed tensors travel together. A pure function of the list that all ranks
// share, so every rank makes the same plan.
#pragma once

#include "runtime/negotiation/wire.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

struct FusionLimits {
  std::uint64_t threshold = 32 << 20;  ///< bytes of one fused group at most
  std::uint64_t max_tensor = 1 << 20;  ///< a tensor of this weight is not packed with others
};

/// Indices into the responses, to be run as one operation. One index: run where the tensor lies.
using FusedGroup = std::vector<std::size_t>;

/// Groups all-reduces of equal type, operation, factors and number of participants; everything else
/// is a group of its own.
/// Responses that failed, or to which nobody contributes, are in no group. A group stands where its
/// first tensor stood. Precondition of use: a response's tensor is contiguous.
std::vector<FusedGroup> plan_fusion(const std::vector<const Response*>& responses,
                                    const FusionLimits& limits);

}  // namespace kolo
