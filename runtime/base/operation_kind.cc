#include "runtime/base/operation_kind.h"

#include <array>
#include <cstddef>

namespace kolo {
namespace {

struct Traits {
  std::string_view name;
  bool is_row_wise = false;
  bool moves_data = false;
  bool is_ordered = false;
  bool is_rooted = false;
};

// By value.
constexpr auto kTraits = std::to_array<Traits>({
    {"allreduce", false, true, true},
    {"broadcast", false, true, true, true},
    {"allgather", true, true, true},
    {"alltoall", true, true, true},
    {"reducescatter", false, true, true},
    {"gather", true, true, true, true},
    {"scatter", true, true, true, true},
    {"barrier", false, false, true},
    {"join"},
    {"add_process_set"},
    {"remove_process_set"},
    {"send", false, true, false},
    {"recv", false, true, false},
});
static_assert(kTraits.size() == kOperationKindCount);

Traits traits_of(OperationKind kind) {
  const auto value = static_cast<std::size_t>(kind);
  return value < kTraits.size() ? kTraits[value] : Traits{"unknown operation"};
}

}  // namespace

std::string_view to_string(OperationKind kind) { return traits_of(kind).name; }
bool is_row_wise(OperationKind kind) { return traits_of(kind).is_row_wise; }
bool moves_data(OperationKind kind) { return traits_of(kind).moves_data; }
bool is_ordered_kind(OperationKind kind) { return traits_of(kind).is_ordered; }
bool is_rooted(OperationKind kind) { return traits_of(kind).is_rooted; }

}  // namespace kolo
