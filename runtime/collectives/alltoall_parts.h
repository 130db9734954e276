// What all alltoall algorithms share: the matrix of parts, where a rank's parts lie, and the copy
// of its own part. Used by the algorithms in this folder.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// The elements that go from each rank to each rank. Refers to `counts`.
class PartMatrix {
 public:
  /// `counts` as in ScheduleRequest.
  PartMatrix(int size, std::span<const std::uint64_t> counts)
      : ranks(static_cast<std::size_t>(size)), counts_(counts), is_even_(counts.size() == 1) {
    KOLO_CHECK(is_even_ || counts.size() == ranks * ranks);
  }

  std::uint64_t operator()(std::size_t from, std::size_t to) const {
    return is_even_ ? counts_.front() : counts_[from * ranks + to];
  }
  /// Where the part lies in the sender's input.
  Interval in_input(std::size_t from, std::size_t to) const {
    const std::uint64_t begin =
        is_even_ ? to * counts_.front() : sum_of(counts_.subspan(from * ranks, to));
    return {begin, (*this)(from, to)};
  }
  /// The longest part that a rank sends to another one.
  std::uint64_t longest() const {
    if (is_even_) return ranks > 1 ? counts_.front() : 0;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < ranks; ++i)
      for (std::size_t j = 0; j < ranks; ++j)
        if (i != j) most = std::max(most, (*this)(i, j));
    return most;
  }

  const std::size_t ranks;

 private:
  const std::span<const std::uint64_t> counts_;
  const bool is_even_;
};

struct AlltoallParts {
  AlltoallParts(int rank, const PartMatrix& matrix) : own(static_cast<std::size_t>(rank)) {
    std::vector<std::uint64_t> row, column;
    for (std::size_t i = 0; i < matrix.ranks; ++i) {
      row.push_back(matrix(own, i));
      column.push_back(matrix(i, own));
    }
    outgoing = end_to_end(row);
    incoming = end_to_end(column);
  }

  ScheduleBuilder begin(std::string algorithm) const {
    const auto total = [](const std::vector<Interval>& parts) {
      return parts.back().begin + parts.back().length;
    };
    return {std::move(algorithm), static_cast<int>(own), static_cast<int>(outgoing.size()),
            total(outgoing), total(incoming)};
  }
  void copy_own(ScheduleBuilder& builder) const {
    if (outgoing[own].length > 0)
      builder.copy(input_at(outgoing[own]), {output_at(incoming[own])}, Scaling::kNone, {});
  }

  std::size_t own;
  std::vector<Interval> outgoing;  ///< by receiver: range of the input
  std::vector<Interval> incoming;  ///< by sender: range of the output
};

}  // namespace kolo
