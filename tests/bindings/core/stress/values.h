// What ranks put into their memory, what they must find there afterwards, and the memory itself,
// with guards around it. Any thread.
#pragma once

#include "tests/bindings/core/stress/program.h"
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

/// Of a tensor of so many rows; one row without a tail is a scalar.
Shape shape_of(const Step& step, std::int64_t rows);

/// Of a rank's input: small enough that all operations on all types are exact.
Value input_value(const Step& step, int rank, std::int64_t element);
/// Of the reduction of what `contributors` (ranks of the world) put in; an average's divisor.
Value reduced_value(const Step& step, const std::vector<int>& contributors, int divisor,
                    std::int64_t element);

/// Writes elements `first` … of `values`, which repeat after kPeriod.
void fill(std::byte* to, DataType type, std::int64_t count, std::int64_t first,
          const ValueOf& values);
/// Empty, or what is wrong there.
std::string compare(const std::byte* found, DataType type, std::int64_t count, std::int64_t first,
                    const ValueOf& values);

/// Memory with guards: the rank's own, or kolo::allocate()'s; or a GPU's, and the host's copy of
/// it.
class Block {
 public:
  /// `gpu`: null for memory of the host.
  Block(std::size_t bytes, std::size_t alignment, Dice& dice, perf::Gpu* gpu = nullptr);
  /// What this rank writes, and looks at.
  std::byte* data() const { return data_; }
  /// What kolo is given.
  std::byte* place() const { return gpu_ == nullptr ? data_ : on_gpu_; }
  /// By the GPU's stream: what was written is there; what is there may be looked at.
  void push() const;
  void pull() const;
  /// Keeps the memory.
  std::shared_ptr<const void> owner() const { return memory_; }
  /// Empty, or what was written around it.
  std::string damage() const;

 private:
  std::shared_ptr<void> memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  perf::Gpu* gpu_ = nullptr;
  std::byte* on_gpu_ = nullptr;
};

}  // namespace kolo::test
