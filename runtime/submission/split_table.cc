#include "runtime/submission/split_table.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace kolo {

Splits shortened(const Splits& splits) {
  const bool is_even =
      !splits.empty() && std::equal(splits.begin() + 1, splits.end(), splits.begin());
  return is_even ? Splits{splits.front()} : splits;
}

SplitTable table_of(OperationKind kind, const std::vector<Splits>& by_rank, std::size_t root) {
  if (kind == OperationKind::kScatter) return by_rank[root];
  const std::size_t width = kind == OperationKind::kAlltoall ? by_rank.size() : 1;
  const Splits& first = by_rank.front();
  const bool is_even =
      first.size() == 1 && std::equal(by_rank.begin() + 1, by_rank.end(), by_rank.begin());
  if (is_even) return first;
  SplitTable table;
  table.reserve(by_rank.size() * width);
  for (const Splits& splits : by_rank) {
    KOLO_CHECK(splits.size() == width || splits.size() == 1);
    if (splits.size() == width) {
      table.insert(table.end(), splits.begin(), splits.end());
    } else {
      table.insert(table.end(), width, splits.front());
    }
  }
  return table;
}

SplitTable table_in_order(OperationKind kind, const Splits& splits) {
  return kind == OperationKind::kScatter ? SplitTable{1} : shortened(splits);
}

std::span<const std::int64_t> splits_of(const SplitTable& table, OperationKind kind, int rank,
                                        int ranks) {
  const std::span<const std::int64_t> all(table);
  if (table.size() == 1 || kind == OperationKind::kScatter) return all;
  const std::size_t width = table.size() / static_cast<std::size_t>(ranks);
  return all.subspan(static_cast<std::size_t>(rank) * width, width);
}

}  // namespace kolo
