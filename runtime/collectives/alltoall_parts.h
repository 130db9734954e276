// What all alltoall algorithms share: where a rank's parts lie, and the copy of its own part. Used
// by the algorithms in this folder.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

struct AlltoallParts {
  /// Parts of `rank`; [i × size + j] elements go from rank i to rank j.
  AlltoallParts(int rank, int size, std::span<const std::uint64_t> matrix)
      : own(static_cast<std::size_t>(rank)) {
    const auto ranks = static_cast<std::size_t>(size);
    KOLO_CHECK(matrix.size() == ranks * ranks);
    outgoing = end_to_end(matrix.subspan(own * ranks, ranks));
    std::vector<std::uint64_t> column;
    for (std::size_t i = 0; i < ranks; ++i) column.push_back(matrix[i * ranks + own]);
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
