// Entry: one submitted operation on its way through the stages. Plain value; the table hands it to
// the controller, the controller to the operation that runs it.
#pragma once

#include <kolo/types.h>
#include <kolo/work.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kolo {

enum class OperationKind : std::uint8_t { kAllreduce, kBroadcast };
std::string_view to_string(OperationKind kind);

/// What all ranks must agree on under one name.
struct Signature {
  OperationKind kind = OperationKind::kAllreduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;

  std::uint64_t elements() const { return static_cast<std::uint64_t>(element_count(shape)); }
  std::uint64_t bytes() const { return elements() * size_of(type); }
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// The first field in which two signatures differ, as a word and both values ("shape", "[2]",
/// "[3]"). Precondition: a != b.
struct SignatureDifference {
  std::string_view field;
  std::string a;
  std::string b;
};
SignatureDifference difference(const Signature& a, const Signature& b);

struct Entry {
  std::string name;
  Signature signature;
  const std::byte* input = nullptr;  ///< contiguous, signature.elements() elements
  std::byte* output = nullptr;
  bool absent = false;  ///< contributes zeros; input is not read
  std::shared_ptr<Work> work;
  std::shared_ptr<const void> keep_alive;
  std::chrono::steady_clock::time_point submitted_at = {};
};

}  // namespace kolo
