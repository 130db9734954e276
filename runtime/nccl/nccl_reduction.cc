#include "runtime/nccl/nccl_reduction.h"

#include "runtime/base/check.h"

#include <optional>

namespace kolo {
namespace {

std::optional<NcclType> nccl_type(DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kComplex64:
      return NcclType::kFloat32;
    case DataType::kFloat64:
    case DataType::kComplex128:
      return NcclType::kFloat64;
    case DataType::kBFloat16:
      return NcclType::kBFloat16;
    case DataType::kInt64:
      return NcclType::kInt64;
    case DataType::kFloat16:
      return NcclType::kFloat16;
    case DataType::kInt32:
      return NcclType::kInt32;
    case DataType::kInt8:
      return NcclType::kInt8;
    case DataType::kUInt8:
    case DataType::kBool:
      return NcclType::kUInt8;
    case DataType::kInt16:
      break;
  }
  return std::nullopt;
}

std::optional<NcclOp> nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return NcclOp::kSum;
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kProduct:
      return NcclOp::kProduct;
    case ReduceOp::kAdasum:
      break;
  }
  return std::nullopt;
}

}  // namespace

Result<NcclReduction> nccl_reduction(DataType type, ReduceOp op) {
  const std::optional<NcclType> its_type = nccl_type(type);
  const std::optional<NcclOp> its_op = nccl_op(op);
  const bool adds = its_op == NcclOp::kSum;
  if (!is_supported(type, op) || !its_type || !its_op || (is_complex(type) && !adds)) {
    return KOLO_ERROR(kUnsupported,
                      "NCCL has no all-reduce of {} with {}; set KOLO_OPERATIONS=kolo on all ranks",
                      to_string(type), to_string(op));
  }
  const std::size_t parts = is_complex(type) ? 2 : 1;
  if (type != DataType::kBool) return NcclReduction{*its_type, *its_op, parts};
  const bool is_or = adds || its_op == NcclOp::kMax;
  return NcclReduction{*its_type, is_or ? NcclOp::kMax : NcclOp::kMin, parts};
}

}  // namespace kolo
