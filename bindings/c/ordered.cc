// The ordered door for C. Any thread.
#include "bindings/c/guard.h"

using kolo::guard;
using kolo::op_of;
using kolo::ProcessSet;
using kolo::type_of;

kolo_status kolo_allreduce_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                   kolo_op op, uint32_t set) {
  return guard([&] {
    kolo::allreduce_ordered(input, output, count, type_of("kolo_allreduce_ordered", type),
                            op_of("kolo_allreduce_ordered", op), ProcessSet(set));
  });
}

kolo_status kolo_broadcast_ordered(void* buffer, int64_t count, kolo_type type, int root,
                                   uint32_t set) {
  return guard([&] {
    kolo::broadcast_ordered(buffer, count, type_of("kolo_broadcast_ordered", type), root,
                            ProcessSet(set));
  });
}

kolo_status kolo_allgather_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                   uint32_t set) {
  return guard([&] {
    kolo::allgather_ordered(input, output, count, type_of("kolo_allgather_ordered", type),
                            ProcessSet(set));
  });
}

kolo_status kolo_alltoall_ordered(const void* input, void* output, int64_t count, kolo_type type,
                                  uint32_t set) {
  return guard([&] {
    kolo::alltoall_ordered(input, output, count, type_of("kolo_alltoall_ordered", type),
                           ProcessSet(set));
  });
}

kolo_status kolo_reducescatter_ordered(const void* input, void* output, int64_t count,
                                       kolo_type type, kolo_op op, uint32_t set) {
  return guard([&] {
    kolo::reducescatter_ordered(input, output, count, type_of("kolo_reducescatter_ordered", type),
                                op_of("kolo_reducescatter_ordered", op), ProcessSet(set));
  });
}

kolo_status kolo_barrier_ordered(uint32_t set) {
  return guard([&] { kolo::barrier_ordered(ProcessSet(set)); });
}
