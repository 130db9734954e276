// Helpers for every function of the C interface. They turn exceptions into a status plus this
// thread's last error, and turn C's numbers and pointers into kolo's types. An invalid argument is
// refused by name. Private to bindings/c; any thread.
#pragma once

#include <kolo/kolo.h>
#include <kolo/kolo_c.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace kolo {

/// Stores the exception in flight as this thread's last error and returns its status. Call it only
/// inside a catch handler.
kolo_status keep_error() noexcept;

/// Runs `call`, which may throw.
template <class Call>
kolo_status guard(Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
    return KOLO_SUCCESS;
  } catch (...) {
    return keep_error();
  }
}

/// Returns the query's value. If the query throws: −1, and sets the last error.
template <class Query>
int value_or_minus_one(Query&& query) noexcept {
  int value = -1;
  guard([&] { value = std::forward<Query>(query)(); });
  return value;
}

// Each function throws kInvalidArgument, naming `call`.
DataType type_of(const char* call, kolo_type type);
ReduceOp op_of(const char* call, kolo_op op);
Shape shape_of(const char* call, const std::int64_t* shape, int dimensions);
/// Refuses a null pointer to memory that is read or written; `what` names the parameter.
void need(const char* call, const void* pointer, const char* what);

}  // namespace kolo
