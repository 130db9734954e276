// The named collectives and messages for C. Any thread.
#include "bindings/c/guard.h"
#include "bindings/c/options.h"
#include "bindings/core/global.h"

#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Starts an operation, gives its work to `work`, or waits for it. `start` returns a kolo_work.
template <class Start>
kolo_status operation(kolo_work** work, Start&& start) noexcept {
  if (work != nullptr) *work = nullptr;
  return guard([&] { hand_out(std::forward<Start>(start)(), work); });
}

kolo_work work_of(std::shared_ptr<Work> work, const kolo_options* options,
                  std::shared_ptr<WorkOutput> output = nullptr) {
  return {.parts = {std::move(work)}, .stream = stream_of(options), .output = std::move(output)};
}

/// One whose output's size the ranks agree on: `start` gets the type, where the output goes, and
/// who must stay until it is done.
template <class Start>
kolo_status row_operation(const char* call, kolo_type type, const kolo_options* options,
                          kolo_work** work, Start&& start) noexcept {
  return operation(work, [&] {
    const DataType element = type_of(call, type);
    auto [allocate, own] = output_place(call, options, element, work);
    return work_of(start(element, std::move(allocate), own), options, own);
  });
}

std::vector<std::int64_t> splits_of(const std::int64_t* splits, const kolo_options* options) {
  if (splits == nullptr) return {};
  return {splits, splits + collective_options(options).process_set.size()};
}

}  // namespace
}  // namespace kolo

using kolo::operation;
using kolo::row_operation;
using kolo::work_of;

kolo_status kolo_allreduce(const void* input, void* output, const int64_t* shape, int dimensions,
                           kolo_type type, kolo_op op, const kolo_options* options,
                           kolo_work** work) {
  constexpr const char* kCall = "kolo_allreduce";
  const auto call = [&](auto&& allreduce) {
    return allreduce(input, output, kolo::shape_of(kCall, shape, dimensions),
                     kolo::type_of(kCall, type),
                     kolo::allreduce_options(options, kolo::op_of(kCall, op)));
  };
  // A call that blocks says so beforehand, which spares it the wait for others to be fused with.
  if (work == nullptr) return kolo::guard([&] { call(kolo::allreduce); });
  return operation(work, [&] { return work_of(call(kolo::allreduce_async), options); });
}

kolo_status kolo_grouped_allreduce(const kolo_member* members, int count, kolo_op op,
                                   const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_grouped_allreduce";
  return operation(work, [&] {
    if (count < 0) kolo::raise(KOLO_ERROR(kInvalidArgument, "{}(): {} members", kCall, count));
    if (count > 0) kolo::need(kCall, members, "members");
    std::vector<kolo::GroupMember> group;
    for (int i = 0; i < count; ++i) {
      const kolo_member& member = members[i];
      group.push_back({.input = member.input,
                       .output = member.output,
                       .shape = kolo::shape_of(kCall, member.shape, member.dimensions),
                       .type = kolo::type_of(kCall, member.type),
                       .name = member.name != nullptr ? member.name : "",
                       .absent = member.absent != 0});
    }
    return kolo_work{.parts = kolo::grouped_allreduce_async(
                         group, kolo::allreduce_options(options, kolo::op_of(kCall, op))),
                     .stream = kolo::stream_of(options)};
  });
}

kolo_status kolo_broadcast(void* buffer, const int64_t* shape, int dimensions, kolo_type type,
                           int root, const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_broadcast";
  return operation(work, [&] {
    return work_of(
        kolo::broadcast_async(buffer, kolo::shape_of(kCall, shape, dimensions),
                              kolo::type_of(kCall, type), root, kolo::collective_options(options)),
        options);
  });
}

kolo_status kolo_allgather(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                           const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_allgather";
  return row_operation(kCall, type, options, work, [&](auto element, auto allocate, auto own) {
    return kolo::allgather_async(input, kolo::shape_of(kCall, shape, dimensions), element,
                                 std::move(allocate), kolo::collective_options(options, own));
  });
}

kolo_status kolo_alltoall(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                          const int64_t* splits, const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_alltoall";
  return row_operation(kCall, type, options, work, [&](auto element, auto allocate, auto own) {
    return kolo::alltoall_async(input, kolo::shape_of(kCall, shape, dimensions), element,
                                kolo::splits_of(splits, options), std::move(allocate),
                                kolo::collective_options(options, own));
  });
}

kolo_status kolo_reducescatter(const void* input, const int64_t* shape, int dimensions,
                               kolo_type type, kolo_op op, const kolo_options* options,
                               kolo_work** work) {
  constexpr const char* kCall = "kolo_reducescatter";
  return row_operation(kCall, type, options, work, [&](auto element, auto allocate, auto own) {
    return kolo::reducescatter_async(
        input, kolo::shape_of(kCall, shape, dimensions), element, std::move(allocate),
        kolo::reducescatter_options(options, kolo::op_of(kCall, op), own));
  });
}

kolo_status kolo_gather(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                        int root, const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_gather";
  return row_operation(kCall, type, options, work, [&](auto element, auto allocate, auto own) {
    return kolo::gather_async(input, kolo::shape_of(kCall, shape, dimensions), element, root,
                              std::move(allocate), kolo::collective_options(options, own));
  });
}

kolo_status kolo_scatter(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                         int root, const int64_t* splits, const kolo_options* options,
                         kolo_work** work) {
  constexpr const char* kCall = "kolo_scatter";
  return row_operation(kCall, type, options, work, [&](auto element, auto allocate, auto own) {
    const bool is_read = kolo::rank() == root;
    return kolo::scatter_async(input, kolo::shape_of(kCall, shape, dimensions), element, root,
                               kolo::splits_of(is_read ? splits : nullptr, options),
                               std::move(allocate), kolo::collective_options(options, own));
  });
}

kolo_status kolo_barrier(const kolo_options* options, kolo_work** work) {
  return operation(work, [&] {
    return work_of(kolo::barrier_async(kolo::collective_options(options)), options);
  });
}

kolo_status kolo_join(uint32_t set, int* last) {
  return kolo::guard([&] {
    const int rank = kolo::join(kolo::ProcessSet(set));
    if (last != nullptr) *last = rank;
  });
}

kolo_status kolo_send(const void* buffer, int64_t count, kolo_type type, int to, uint32_t tag,
                      const kolo_options* options, kolo_work** work) {
  return operation(work, [&] {
    return work_of(kolo::send_async(buffer, count, kolo::type_of("kolo_send", type), to,
                                    kolo::message_options(options, tag)),
                   options);
  });
}

kolo_status kolo_recv(void* buffer, int64_t count, kolo_type type, int from, uint32_t tag,
                      const kolo_options* options, kolo_work** work) {
  return operation(work, [&] {
    return work_of(kolo::recv_async(buffer, count, kolo::type_of("kolo_recv", type), from,
                                    kolo::message_options(options, tag)),
                   options);
  });
}
