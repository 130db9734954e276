// This rank's part of an operation whose output has rows from the others: its input, the memory of
// its output, and what must be there.
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
  /// `gpu`: of a step that is on it.
  RowOutput(const Step& step, int rank, Dice& dice, perf::Gpu* gpu);
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;

  const void* input() const { return input_; }
  const Shape& input_shape() const { return input_shape_; }
  /// Whether the output has no elements.
  bool is_empty() const { return element_count(output_shape_) == 0; }
  /// Of the output; this must stay until the Work is done.
  Allocator allocator();
  /// Empty, or what is wrong; `splits` as the Work has them.
  std::string wrong(const std::vector<std::int64_t>& splits) const;

 private:
  /// Rows of the output that lie together: a rank's, or of the reduction.
  struct Piece {
    int from = 0;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
  };
  void expect_pieces();

  const Step step_;
  const int rank_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> splits_;  ///< that the Work must have; none: no matter
  Shape input_shape_;
  std::optional<Block> own_;  ///< the input, unless the output holds it
  std::optional<Block> output_;
  const std::byte* input_ = nullptr;
  Shape output_shape_;
  Shape asked_for_;  ///< by kolo
};

}  // namespace kolo::test
