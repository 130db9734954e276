// NCCL's type and operation for an all-reduce of kolo. Pure.
#pragma once

#include "runtime/nccl/nccl_api.h"

#include <kolo/types.h>

namespace kolo {

struct NcclReduction {
  NcclType type = NcclType::kFloat32;
  NcclOp op = NcclOp::kSum;
  std::size_t values = 1;  ///< NCCL values (of `type`) in one element of kolo
};

/// kAverage becomes a sum, and the caller applies the divisor: NCCL's own average would round
/// differently. A bool is a byte of 0 or 1: "or" is the maximum, "and" is the minimum. A complex
/// number is two real numbers. kUnsupported for int16, products of complex numbers, and Adasum.
Result<NcclReduction> nccl_reduction(DataType type, ReduceOp op);

}  // namespace kolo
