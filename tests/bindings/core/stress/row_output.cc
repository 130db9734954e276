#include "tests/bindings/core/stress/row_output.h"

#include <fmt/format.h>

#include <numeric>

namespace kolo::test {
namespace {

Shape with_rows(std::int64_t rows, Shape tail) {
  tail.insert(tail.begin(), rows);
  return tail;
}

std::int64_t sum_before(const std::vector<std::int64_t>& splits, int place) {
  return std::accumulate(splits.begin(), splits.begin() + place, std::int64_t{0});
}

}  // namespace

void RowOutput::expect_pieces() {
  const int place = step_.place_of(rank_);
  const auto at = static_cast<std::size_t>(place);
  const bool is_root = step_.root == rank_;
  if (step_.act == Act::kReduceScatter) {
    const std::int64_t size = step_.size();
    const auto first = [&](std::int64_t p) {
      return p * (step_.rows / size) + std::min(p, step_.rows % size);
    };
    pieces_ = {{0, first(place), first(place + 1) - first(place)}};
    return;
  }
  if (step_.act == Act::kScatter) {
    const auto& splits = step_.splits[static_cast<std::size_t>(step_.place_of(step_.root))];
    pieces_ = {{step_.root, sum_before(splits, place), splits[at]}};
    return;
  }
  if (step_.act == Act::kGather && !is_root) return;
  for (std::size_t p = 0; p < step_.ranks.size(); ++p) {
    const bool deals = step_.act == Act::kAlltoall;
    pieces_.push_back({step_.ranks[p], deals ? sum_before(step_.splits[p], place) : 0,
                       deals ? step_.splits[p][at] : step_.rows_of[p]});
    splits_.push_back(pieces_.back().rows);
  }
}

RowOutput::RowOutput(const Step& step, int rank, Dice& dice, perf::Gpu* gpu)
    : step_(step), rank_(rank) {
  expect_pieces();
  const auto width = static_cast<std::int64_t>(size_of(step_.type)) * step_.tail_elements();
  std::int64_t rows = 0;
  std::int64_t own_row = -1;
  for (const Piece& piece : pieces_) {
    if (step_.act == Act::kAllgather && piece.from == rank_) own_row = rows;
    rows += piece.rows;
  }
  output_shape_ = with_rows(rows, step_.tail);
  output_.emplace(static_cast<std::size_t>(rows * width), size_of(step_.type), dice, gpu);
  output_->push();
  const bool reads = step_.act != Act::kScatter || step_.root == rank_;
  const std::int64_t input_rows =
      step_.act == Act::kReduceScatter ? step_.rows
      : reads ? step_.rows_of[static_cast<std::size_t>(step_.place_of(rank_))]
              : dice.below(5);
  input_shape_ = with_rows(input_rows, step_.tail);
  if (!reads) return;
  const bool lies_in_output = own_row >= 0 && dice.one_in(2);
  if (!lies_in_output)
    own_.emplace(static_cast<std::size_t>(input_rows * width), size_of(step_.type), dice, gpu);
  const Block& block = lies_in_output ? *output_ : *own_;
  const std::int64_t offset = lies_in_output ? own_row * width : 0;
  fill(block.data() + offset, step_.type, element_count(input_shape_), 0,
       [this](std::int64_t i) { return input_value(step_, rank_, i); });
  block.push();
  input_ = block.place() + offset;
}

Allocator RowOutput::allocator() {
  return [this](const Shape& shape) -> void* {
    asked_for_ = shape;
    return element_count(shape) <= element_count(output_shape_) ? output_->place() : nullptr;
  };
}

std::string RowOutput::wrong(const std::vector<std::int64_t>& splits) const {
  if (asked_for_ != output_shape_) {
    return fmt::format("an output of {} instead of {} was asked for", to_string(asked_for_),
                       to_string(output_shape_));
  }
  if (!splits_.empty() && splits != splits_) return "received_splits()";
  output_->pull();
  if (own_) own_->pull();
  const std::int64_t elements = step_.tail_elements();
  const std::byte* at = output_->data();
  for (const Piece& piece : pieces_) {
    const std::string found = compare(
        at, step_.type, piece.rows * elements, piece.first_row * elements, [&](std::int64_t i) {
          return step_.act == Act::kReduceScatter
                     ? reduced_value(step_, step_.ranks, step_.size(), i)
                     : input_value(step_, piece.from, i);
        });
    if (!found.empty()) return fmt::format("rows from rank {}: {}", piece.from, found);
    at += static_cast<std::size_t>(piece.rows * elements) * size_of(step_.type);
  }
  if (own_) {
    const std::string found =
        compare(own_->data(), step_.type, element_count(input_shape_), 0,
                [this](std::int64_t i) { return input_value(step_, rank_, i); });
    if (!found.empty()) return "of the input: " + found;
    if (!own_->damage().empty()) return "of the input: " + own_->damage();
  }
  return output_->damage();
}

}  // namespace kolo::test
