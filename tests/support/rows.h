// Submissions of the row-wise operations, with outputs that grow once the ranks have agreed. For
// tests of the runtime.
#pragma once

#include "tests/support/local_world.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Waits for a Work; the test ends if the Work has failed.
#define ASSERT_DONE(work)                                               \
  do {                                                                  \
    const ::kolo::Status status_of_work = (work)->wait();               \
    ASSERT_TRUE(status_of_work.ok()) << status_of_work.error().message; \
  } while (false)

namespace kolo::test {

/// The memory of one operation.
template <class T>
struct Rows {
  std::vector<T> input;
  std::vector<T> output;
  Shape output_shape;
  int allocations = 0;
};

template <class T>
DataType type_of();
template <>
inline DataType type_of<float>() {
  return DataType::kFloat32;
}
template <>
inline DataType type_of<double>() {
  return DataType::kFloat64;
}
template <>
inline DataType type_of<std::int64_t>() {
  return DataType::kInt64;
}

/// `rows` must live until the operation is done; its input holds the product of `shape` elements.
template <class T>
Submission rows_of(OperationKind kind, const std::string& name, Rows<T>& rows, Shape shape) {
  Submission submission;
  submission.name = name;
  submission.signature.kind = kind;
  submission.signature.type = type_of<T>();
  submission.signature.shape = std::move(shape);
  submission.input = reinterpret_cast<const std::byte*>(rows.input.data());
  submission.allocate = [&rows](const Shape& output_shape) {
    ++rows.allocations;
    rows.output_shape = output_shape;
    rows.output.assign(static_cast<std::size_t>(element_count(output_shape)), T{});
    return reinterpret_cast<std::byte*>(rows.output.data());
  };
  return submission;
}

}  // namespace kolo::test
