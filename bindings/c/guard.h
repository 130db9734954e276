// What every function of the C interface does: exceptions become a status and this thread's last
// error, and what C passes as numbers and pointers becomes kolo's types, or is refused by name.
// Private to bindings/c; any thread.
#pragma once

#include <kolo/kolo.h>
#include <kolo/kolo_c.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace kolo {

/// Keeps what is being thrown as the thread's last error, and returns its status. To be called in a
/// handler alone.
kolo_status keep_error() noexcept;

/// Does `call`, which may throw.
template <class Call>
kolo_status guard(Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
    return KOLO_SUCCESS;
  } catch (...) {
    return keep_error();
  }
}

/// A query's value; −1 and a last error where it throws.
template <class Query>
int value_or_minus_one(Query&& query) noexcept {
  int value = -1;
  guard([&] { value = std::forward<Query>(query)(); });
  return value;
}

// Each throws kInvalidArgument, naming `call`.
DataType type_of(const char* call, kolo_type type);
ReduceOp op_of(const char* call, kolo_op op);
Shape shape_of(const char* call, const std::int64_t* shape, int dimensions);
/// Refuses a null pointer where something is to be read or written; `what` is the parameter.
void need(const char* call, const void* pointer, const char* what);

}  // namespace kolo
