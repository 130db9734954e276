// This rank's part of an operation whose output has rows from other ranks: its input, the memory of
// its output, and the expected result.
#pragma once

#include "tests/bindings/core/stress/values.h"

#include <kolo/kolo.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo::test {

class RowOutput {
 public:
  /// `gpu`: for a step whose memory is on the GPU.
  RowOutput(const Step& step, int rank, Dice& dice, perf::Gpu* gpu);
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;

  const void* input() const { return input_; }
  const Shape& input_shape() const { return input_shape_; }
  /// Whether the output has no elements.
  bool is_empty() const { return element_count(output_shape_) == 0; }
  /// Allocates the output; this object must live until the Work is done.
  Allocator allocator();
  /// Empty, or what is wrong; `splits` are those of the Work.
  std::string wrong(const std::vector<std::int64_t>& splits) const;

 private:
  /// Rows of the output that lie together: one rank's rows, or rows of the reduction.
  struct Piece {
    int from = 0;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
  };
  void expect_pieces();

  const Step step_;
  const int rank_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> splits_;  ///< splits that the Work must have; none: any
  Shape input_shape_;
  std::optional<Block> own_;  ///< the input, unless the output holds it
  std::optional<Block> output_;
  const std::byte* input_ = nullptr;
  Shape output_shape_;
  Shape asked_for_;  ///< what kolo asked for
};

}  // namespace kolo::test
