// Values that ranks write into their memory, values that they must find there afterwards, and the
// memory itself, with guards around it. Any thread.
#pragma once

#include "tests/bindings/core/stress/program.h"
#include "tests/support/scribbling_child.h"
#include "tools/perf/gpu.h"

#include <kolo/types.h>

#include <complex>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

using Value = std::complex<double>;
using ValueOf = std::function<Value(std::int64_t element)>;

/// Shape of a tensor with `rows` rows; one row without a tail is a scalar.
Shape shape_of(const Step& step, std::int64_t rows);

/// An element of a rank's input: so small that all operations on all types are exact, but for the
/// one rounding of a half type's result.
Value input_value(const Step& step, int rank, std::int64_t element);
/// An element of the reduction of the inputs of `contributors` (ranks of the world); `divisor` is
/// for an average.
Value reduced_value(const Step& step, const std::vector<int>& contributors, int divisor,
                    std::int64_t element);

/// Writes elements `first` … of `values`, which repeat after kPeriod.
void fill(std::byte* to, DataType type, std::int64_t count, std::int64_t first,
          const ValueOf& values);
/// Empty, or what is wrong in the memory.
std::string compare(const std::byte* found, DataType type, std::int64_t count, std::int64_t first,
                    const ValueOf& values);

/// Memory with guards: the rank's own, or from kolo::allocate(), or a GPU's with a copy on the
/// host.
class Block {
 public:
  /// `gpu`: null for memory of the host.
  Block(std::size_t bytes, std::size_t alignment, Dice& dice, perf::Gpu* gpu = nullptr);
  /// The memory that this rank writes and checks.
  std::byte* data() const { return data_; }
  /// The memory that kolo gets.
  std::byte* place() const { return gpu_ == nullptr ? data_ : on_gpu_; }
  /// On the GPU's stream: push() copies the rank's writes to the GPU, pull() copies them back for a
  /// check.
  void push() const;
  void pull() const;
  /// Owner that keeps the memory alive.
  std::shared_ptr<const void> owner() const { return memory_; }
  /// Empty, or what was written around the memory.
  std::string damage() const;

 private:
  std::shared_ptr<void> memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  perf::Gpu* gpu_ = nullptr;
  std::byte* on_gpu_ = nullptr;
};

/// The memory from kolo::allocate() of all blocks that there are; any thread.
ScribblingChild::Memory shared_blocks();

}  // namespace kolo::test
