// In-order submission for C. Any thread.
#include "bindings/c/guard.h"
#include "bindings/core/refusals.h"

namespace kolo {
namespace {

/// Passes the arguments to `call`. Invalid arguments become a refused call, so that this rank's
/// calls keep the same numbers as those of the other ranks.
template <class Call>
kolo_status ordered(const char* name, OperationKind kind, kolo_type type, kolo_op op,
                    std::uint32_t set, Call&& call) noexcept {
  return guard([&] {
    DataType element{};
    ReduceOp reduction{};
    try {
      element = type_of(name, type);
      reduction = op_of(name, op);
    } catch (const Exception& error) {
      refuse_ordered(kind, error.what(), ProcessSet(set));
      throw;
    }
    std::forward<Call>(call)(element, reduction, ProcessSet(set));
  });
}

}  // namespace
}  // namespace kolo

using kolo::OperationKind;
using kolo::ordered;

kolo_status kolo_allreduce_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                   kolo_op op, uint32_t set) {
  return ordered("kolo_allreduce_ordered", OperationKind::kAllreduce, type, op, set,
                 [&](auto element, auto reduction, auto ranks) {
                   kolo::allreduce_ordered(input, output, count, element, reduction, ranks);
                 });
}

kolo_status kolo_broadcast_ordered(void* buffer, int64_t count, kolo_type type, int root,
                                   uint32_t set) {
  return ordered("kolo_broadcast_ordered", OperationKind::kBroadcast, type, KOLO_SUM, set,
                 [&](auto element, auto, auto ranks) {
                   kolo::broadcast_ordered(buffer, count, element, root, ranks);
                 });
}

kolo_status kolo_allgather_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                   uint32_t set) {
  return ordered("kolo_allgather_ordered", OperationKind::kAllgather, type, KOLO_SUM, set,
                 [&](auto element, auto, auto ranks) {
                   kolo::allgather_ordered(input, output, count, element, ranks);
                 });
}

kolo_status kolo_alltoall_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                  uint32_t set) {
  return ordered("kolo_alltoall_ordered", OperationKind::kAlltoall, type, KOLO_SUM, set,
                 [&](auto element, auto, auto ranks) {
                   kolo::alltoall_ordered(input, output, count, element, ranks);
                 });
}

kolo_status kolo_reducescatter_ordered(const void* input, void* output, int64_t count,
                                       kolo_type type, kolo_op op, uint32_t set) {
  return ordered("kolo_reducescatter_ordered", OperationKind::kReduceScatter, type, op, set,
                 [&](auto element, auto reduction, auto ranks) {
                   kolo::reducescatter_ordered(input, output, count, element, reduction, ranks);
                 });
}

kolo_status kolo_gather_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                int root, uint32_t set) {
  return ordered("kolo_gather_ordered", OperationKind::kGather, type, KOLO_SUM, set,
                 [&](auto element, auto, auto ranks) {
                   kolo::gather_ordered(input, output, count, element, root, ranks);
                 });
}

kolo_status kolo_scatter_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                 int root, uint32_t set) {
  return ordered("kolo_scatter_ordered", OperationKind::kScatter, type, KOLO_SUM, set,
                 [&](auto element, auto, auto ranks) {
                   kolo::scatter_ordered(input, output, count, element, root, ranks);
                 });
}

kolo_status kolo_barrier_ordered(uint32_t set) {
  return kolo::guard([&] { kolo::barrier_ordered(kolo::ProcessSet(set)); });
}
