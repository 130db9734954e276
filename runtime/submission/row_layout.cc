// Converts rows to elements and offsets. Pure; any thread.
#include "runtime/submission/row_layout.h"

#include "runtime/submission/split_table.h"

#include <numeric>

namespace kolo {
namespace {

std::int64_t sum(const Splits& splits) {
  return std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
}

Shape with_rows(std::int64_t rows, const Shape& row_shape) {
  Shape shape{rows};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  return shape;
}

/// Converts rows to elements.
std::vector<std::uint64_t> elements_of(const Splits& rows, std::uint64_t row) {
  std::vector<std::uint64_t> counts;
  counts.reserve(rows.size());
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::uint64_t>(count) * row);
  return counts;
}

std::int64_t rows_to(int rank, std::span<const std::int64_t> splits) {
  return splits.size() == 1 ? splits.front() : splits[static_cast<std::size_t>(rank)];
}

/// A number for each rank, from a table that may have one for all.
Splits for_each_rank(const SplitTable& table, const Communicator& communicator) {
  const auto size = static_cast<std::size_t>(communicator.size());
  return table.size() == 1 ? Splits(size, table.front()) : table;
}

std::uint64_t before(const std::vector<std::uint64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
}

}  // namespace

std::int64_t even_share(std::int64_t rows, int rank, int size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

RowLayout layout_of(const Signature& signature, const SplitTable& table,
                    const Communicator& communicator) {
  RowLayout layout;
  const int rank = communicator.rank();
  const int size = communicator.size();
  const auto me = static_cast<std::size_t>(rank);
  // For kinds without a root, signature.root is 0, which need not be a member.
  const auto root = static_cast<std::size_t>(communicator.index_of(signature.root).value_or(0));
  const std::uint64_t row = signature.elements();
  const auto set_output = [&](std::int64_t rows, const Shape& row_shape, std::uint64_t elements) {
    layout.output_shape = with_rows(rows, row_shape);
    layout.output_elements = static_cast<std::uint64_t>(rows) * elements;
  };
  switch (signature.kind) {
    case OperationKind::kAllgather:
    case OperationKind::kGather: {
      Splits rows = for_each_rank(table, communicator);
      layout.counts = elements_of(rows, row);
      layout.input_elements = layout.counts[me];
      layout.own_offset = before(layout.counts, rank);
      const bool receives = signature.kind == OperationKind::kAllgather || me == root;
      set_output(receives ? sum(rows) : 0, signature.shape, row);
      if (receives) layout.received = std::move(rows);
      break;
    }
    case OperationKind::kAlltoall: {
      std::int64_t sent = 0;
      layout.counts = elements_of(table, row);
      for (int r = 0; r < size; ++r) {
        layout.received.push_back(rows_to(rank, splits_of(table, signature.kind, r, size)));
        sent += rows_to(r, splits_of(table, signature.kind, rank, size));
      }
      layout.input_elements = static_cast<std::uint64_t>(sent) * row;
      set_output(sum(layout.received), signature.shape, row);
      break;
    }
    case OperationKind::kScatter:
      layout.counts = elements_of(for_each_rank(table, communicator), row);
      layout.input_elements = me == root ? before(layout.counts, size) : 0;
      layout.own_offset = before(layout.counts, rank);
      set_output(rows_to(rank, table), signature.shape, row);
      break;
    case OperationKind::kReduceScatter: {
      const Shape row_shape(signature.shape.begin() + 1, signature.shape.end());
      const auto row_elements = static_cast<std::uint64_t>(element_count(row_shape));
      Splits rows;
      for (int r = 0; r < size; ++r) rows.push_back(even_share(signature.shape.front(), r, size));
      layout.counts = elements_of(rows, row_elements);
      layout.input_elements = row;
      layout.own_offset = before(layout.counts, rank);
      set_output(rows[me], row_shape, row_elements);
      break;
    }
    case OperationKind::kSend:
      layout.input_elements = row;
      break;
    case OperationKind::kReceive:
      layout.output_elements = row;
      layout.output_shape = signature.shape;
      break;
    case OperationKind::kAllreduce:
    case OperationKind::kBroadcast:
      layout.input_elements = row;
      layout.output_elements = row;
      layout.output_shape = signature.shape;
      break;
    case OperationKind::kBarrier:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
      break;
  }
  return layout;
}

}  // namespace kolo
