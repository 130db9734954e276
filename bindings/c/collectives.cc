// The named collectives and messages for C. Any thread.
#include "bindings/c/guard.h"
#include "bindings/c/options.h"
#include "bindings/core/global.h"
#include "bindings/core/refusals.h"

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The shape and element type that C passes as numbers and pointers.
struct Tensor {
  Shape shape;
  DataType type;
};
Tensor tensor_of(const char* call, const std::int64_t* shape, int dimensions, kolo_type type) {
  return {shape_of(call, shape, dimensions), type_of(call, type)};
}

kolo_work work_of(std::shared_ptr<Work> work, const kolo_options* options,
                  std::shared_ptr<WorkOutput> output = nullptr) {
  return {.parts = {std::move(work)}, .stream = stream_of(options), .output = std::move(output)};
}

/// Refuses a call whose arguments are wrong; runs inside the handler of `error`. Returns the work
/// of the refused calls `names` (one call or a group's), which fail on all ranks. Throws the error
/// before init, and if no name tells the other ranks which call fails.
kolo_work refuse_names(OperationKind kind, const std::vector<std::string>& names,
                       const std::string& group, const CollectiveOptions& options,
                       const Exception& error) {
  if (options.name.empty() || names.empty()) throw;
  std::vector<RefusedCall> calls;
  for (const std::string& name : names) calls.push_back({name, {.kind = kind}});
  return {.parts = refuse_caught(std::move(calls), error.what(), group, options.process_set)};
}

/// Starts an operation and gives its work to `work`, or waits if `work` is null. `convert` turns
/// C's arguments into C++ ones; if `convert` throws, the call is refused. `start` returns a
/// kolo_work.
template <class Convert, class Start>
kolo_status operation(OperationKind kind, const kolo_options* options, kolo_work** work,
                      Convert&& convert, Start&& start) noexcept {
  if (work != nullptr) *work = nullptr;
  return guard([&] {
    std::optional<std::invoke_result_t<Convert>> arguments;
    try {
      arguments.emplace(std::forward<Convert>(convert)());
    } catch (const Exception& error) {
      const CollectiveOptions call = collective_options(options);
      return give_work(refuse_names(kind, {call.name}, "", call, error), work);
    }
    give_work(std::forward<Start>(start)(*std::move(arguments)), work);
  });
}

/// An operation whose output size the ranks agree on. `start` gets the tensor, the allocator of the
/// output, and the owner that keeps the output alive until the operation is done.
template <class Convert, class Start>
kolo_status row_operation(const char* call, OperationKind kind, const kolo_options* options,
                          kolo_work** work, Convert&& convert, Start&& start) noexcept {
  return operation(
      kind, options, work,
      [&] {
        auto tensor = std::forward<Convert>(convert)();
        OutputMemory output = output_memory(call, options, tensor.type, work);
        return std::pair(std::move(tensor), std::move(output));
      },
      [&](auto arguments) {
        auto& [tensor, output] = arguments;
        return work_of(start(std::move(tensor), std::move(output.allocate), output.own), options,
                       output.own);
      });
}

/// Starts a message and gives its work to `work`, or waits if `work` is null. `start` gets the
/// element type; if there is no such type, the message is refused.
template <class Start>
kolo_status message(const char* call, OperationKind kind, kolo_type type, int peer,
                    std::uint32_t tag, const kolo_options* options, kolo_work** work,
                    Start&& start) noexcept {
  if (work != nullptr) *work = nullptr;
  return guard([&] {
    const MessageOptions its = message_options(options, tag);
    const DataType element =
        checked([&] { return type_of(call, type); },
                [&](const std::exception& error) {
                  refuse_message(kind, peer, tag, error.what(), its.process_set);
                });
    give_work(work_of(std::forward<Start>(start)(element, its), options), work);
  });
}

std::vector<std::int64_t> splits_of(const std::int64_t* splits, const kolo_options* options) {
  if (splits == nullptr) return {};
  return {splits, splits + collective_options(options).process_set.size()};
}

struct Reduction : Tensor {
  ReduceOp op;
};
Reduction reduction_of(const char* call, const std::int64_t* shape, int dimensions, kolo_type type,
                       kolo_op op) {
  return {tensor_of(call, shape, dimensions, type), op_of(call, op)};
}

std::vector<GroupMember> group_of(const char* call, const kolo_member* members, int count) {
  if (count < 0) raise(KOLO_ERROR(kInvalidArgument, "{}(): {} members", call, count));
  if (count > 0) need(call, members, "members");
  std::vector<GroupMember> group;
  for (int i = 0; i < count; ++i) {
    const kolo_member& member = members[i];
    group.push_back({.input = member.input,
                     .output = member.output,
                     .shape = shape_of(call, member.shape, member.dimensions),
                     .type = type_of(call, member.type),
                     .name = member.name != nullptr ? member.name : "",
                     .absent = member.absent != 0});
  }
  return group;
}

/// The members' names, formed as the core forms them.
std::vector<std::string> names_of(const kolo_member* members, int count, const std::string& group) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    const bool has_own = members != nullptr && members[i].name != nullptr;
    names.push_back(has_own ? members[i].name : group + "/" + std::to_string(i));
  }
  return names;
}

}  // namespace
}  // namespace kolo

using kolo::operation;
using kolo::OperationKind;
using kolo::row_operation;
using kolo::work_of;

kolo_status kolo_allreduce(const void* input, void* output, const int64_t* shape, int dimensions,
                           kolo_type type, kolo_op op, const kolo_options* options,
                           kolo_work** work) {
  return operation(
      OperationKind::kAllreduce, options, work,
      [&] { return kolo::reduction_of("kolo_allreduce", shape, dimensions, type, op); },
      [&](const kolo::Reduction& tensor) -> kolo_work {
        const auto call = kolo::allreduce_options(options, tensor.op);
        if (work != nullptr)
          return work_of(kolo::allreduce_async(input, output, tensor.shape, tensor.type, call),
                         options);
        // A blocking call announces that it blocks, so it does not wait for others to fuse with.
        kolo::allreduce(input, output, tensor.shape, tensor.type, call);
        return {};
      });
}

kolo_status kolo_grouped_allreduce(const kolo_member* members, int count, kolo_op op,
                                   const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_grouped_allreduce";
  if (work != nullptr) *work = nullptr;
  return kolo::guard([&] {
    std::vector<kolo::GroupMember> group;
    kolo::AllreduceOptions call;
    try {
      group = kolo::group_of(kCall, members, count);
      call = kolo::allreduce_options(options, kolo::op_of(kCall, op));
    } catch (const kolo::Exception& error) {
      const auto named = kolo::collective_options(options);
      const auto names = kolo::names_of(members, count, named.name);
      return kolo::give_work(
          kolo::refuse_names(OperationKind::kAllreduce, names, named.name, named, error), work);
    }
    kolo::give_work(
        {.parts = kolo::grouped_allreduce_async(group, call), .stream = kolo::stream_of(options)},
        work);
  });
}

kolo_status kolo_broadcast(void* buffer, const int64_t* shape, int dimensions, kolo_type type,
                           int root, const kolo_options* options, kolo_work** work) {
  return operation(
      OperationKind::kBroadcast, options, work,
      [&] { return kolo::tensor_of("kolo_broadcast", shape, dimensions, type); },
      [&](const kolo::Tensor& tensor) {
        return work_of(kolo::broadcast_async(buffer, tensor.shape, tensor.type, root,
                                             kolo::collective_options(options)),
                       options);
      });
}

kolo_status kolo_allgather(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                           const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_allgather";
  return row_operation(
      kCall, OperationKind::kAllgather, options, work,
      [&] { return kolo::tensor_of(kCall, shape, dimensions, type); },
      [&](auto tensor, auto allocate, auto own) {
        return kolo::allgather_async(input, tensor.shape, tensor.type, std::move(allocate),
                                     kolo::collective_options(options, own));
      });
}

kolo_status kolo_alltoall(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                          const int64_t* splits, const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_alltoall";
  return row_operation(
      kCall, OperationKind::kAlltoall, options, work,
      [&] { return kolo::tensor_of(kCall, shape, dimensions, type); },
      [&](auto tensor, auto allocate, auto own) {
        return kolo::alltoall_async(input, tensor.shape, tensor.type,
                                    kolo::splits_of(splits, options), std::move(allocate),
                                    kolo::collective_options(options, own));
      });
}

kolo_status kolo_reducescatter(const void* input, const int64_t* shape, int dimensions,
                               kolo_type type, kolo_op op, const kolo_options* options,
                               kolo_work** work) {
  constexpr const char* kCall = "kolo_reducescatter";
  return row_operation(
      kCall, OperationKind::kReduceScatter, options, work,
      [&] { return kolo::reduction_of(kCall, shape, dimensions, type, op); },
      [&](auto tensor, auto allocate, auto own) {
        return kolo::reducescatter_async(input, tensor.shape, tensor.type, std::move(allocate),
                                         kolo::reducescatter_options(options, tensor.op, own));
      });
}

kolo_status kolo_gather(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                        int root, const kolo_options* options, kolo_work** work) {
  constexpr const char* kCall = "kolo_gather";
  return row_operation(
      kCall, OperationKind::kGather, options, work,
      [&] { return kolo::tensor_of(kCall, shape, dimensions, type); },
      [&](auto tensor, auto allocate, auto own) {
        return kolo::gather_async(input, tensor.shape, tensor.type, root, std::move(allocate),
                                  kolo::collective_options(options, own));
      });
}

kolo_status kolo_scatter(const void* input, const int64_t* shape, int dimensions, kolo_type type,
                         int root, const int64_t* splits, const kolo_options* options,
                         kolo_work** work) {
  constexpr const char* kCall = "kolo_scatter";
  return row_operation(
      kCall, OperationKind::kScatter, options, work,
      [&] { return kolo::tensor_of(kCall, shape, dimensions, type); },
      [&](auto tensor, auto allocate, auto own) {
        return kolo::scatter_async(
            input, tensor.shape, tensor.type, root,
            kolo::splits_of(kolo::rank() == root ? splits : nullptr, options), std::move(allocate),
            kolo::collective_options(options, own));
      });
}

kolo_status kolo_barrier(const kolo_options* options, kolo_work** work) {
  if (work != nullptr) *work = nullptr;
  return kolo::guard([&] {
    kolo::give_work(work_of(kolo::barrier_async(kolo::collective_options(options)), options), work);
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
  return kolo::message("kolo_send", OperationKind::kSend, type, to, tag, options, work,
                       [&](kolo::DataType element, const kolo::MessageOptions& its) {
                         return kolo::send_async(buffer, count, element, to, its);
                       });
}

kolo_status kolo_recv(void* buffer, int64_t count, kolo_type type, int from, uint32_t tag,
                      const kolo_options* options, kolo_work** work) {
  return kolo::message("kolo_recv", OperationKind::kReceive, type, from, tag, options, work,
                       [&](kolo::DataType element, const kolo::MessageOptions& its) {
                         return kolo::recv_async(buffer, count, element, from, its);
                       });
}
