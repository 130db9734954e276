// This rank's part of an all-reduce, single or in a group: its memory, and the expected result.
#pragma once

#include "tests/bindings/core/stress/values.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

class ReducedOutput {
 public:
  /// `gpu`: for a step whose memory is on the GPU.
  ReducedOutput(const Step& step, int rank, std::vector<int> contributors, int divisor, Dice& dice,
                perf::Gpu* gpu);
  ReducedOutput(const ReducedOutput&) = delete;
  ReducedOutput& operator=(const ReducedOutput&) = delete;

  const std::byte* input() const { return input_; }
  std::byte* output() const { return output_.place(); }
  const Shape& shape() const { return shape_; }
  bool absent() const { return absent_; }
  const std::vector<int>& contributors() const { return contributors_; }
  /// The owner of the input, if the input may be freed as soon as kolo has finished with it.
  std::shared_ptr<const void> hand_over_input() { return std::exchange(handed_over_, nullptr); }
  /// Empty, or what is wrong.
  std::string wrong() const;

 private:
  ValueOf own_values() const;

  const Step step_;
  const int rank_;
  const std::vector<int> contributors_;
  const int divisor_;
  const std::int64_t count_;
  const Block output_;
  const Shape shape_;
  const bool absent_;
  const std::byte* input_ = nullptr;
  std::optional<Block> kept_;  ///< the input, unless it is the output or handed over
  std::shared_ptr<const void> handed_over_;
};

}  // namespace kolo::test
