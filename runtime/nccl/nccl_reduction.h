// How NCCL is told of an all-reduce: its type and operation for one of kolo's. Pure.
#pragma once

#include "runtime/nccl/nccl_api.h"

#include <kolo/types.h>

namespace kolo {

struct NcclReduction {
  NcclType type = NcclType::kFloat32;
  NcclOp op = NcclOp::kSum;
  std::size_t values = 1;  ///< of `type`, in an element of kolo's
};

/// kAverage is the sum, whose divisor the caller applies: NCCL's own average would round otherwise.
/// A bool is a byte of 0 or 1, whose "or" is the maximum and whose "and" is the minimum. A complex
/// number is two real ones. kUnsupported for int16, products of complex numbers, and Adasum.
Result<NcclReduction> nccl_reduction(DataType type, ReduceOp op);

}  // namespace kolo
