#include "runtime/base/operation_kind.h"

namespace kolo {
namespace {

struct Traits {
  std::string_view name;
  bool is_row_wise = false;
  bool moves_data = false;
  bool is_ordered = false;
};

Traits traits_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllreduce:
      return {"allreduce", false, true, true};
    case OperationKind::kBroadcast:
      return {"broadcast", false, true, true};
    case OperationKind::kAllgather:
      return {"allgather", true, true, true};
    case OperationKind::kAlltoall:
      return {"alltoall", true, true, true};
    case OperationKind::kReduceScatter:
      return {"reducescatter", false, true, true};
    case OperationKind::kGather:
      return {"gather", true, true, false};
    case OperationKind::kScatter:
      return {"scatter", true, true, false};
    case OperationKind::kBarrier:
      return {"barrier", false, false, true};
    case OperationKind::kJoin:
      return {"join"};
    case OperationKind::kAddProcessSet:
      return {"add_process_set"};
    case OperationKind::kRemoveProcessSet:
      return {"remove_process_set"};
    case OperationKind::kSend:
      return {"send", false, true, false};
    case OperationKind::kReceive:
      return {"recv", false, true, false};
  }
  return {"unknown operation"};
}

}  // namespace

std::string_view to_string(OperationKind kind) { return traits_of(kind).name; }
bool is_row_wise(OperationKind kind) { return traits_of(kind).is_row_wise; }
bool moves_data(OperationKind kind) { return traits_of(kind).moves_data; }
bool is_ordered_kind(OperationKind kind) { return traits_of(kind).is_ordered; }

}  // namespace kolo
