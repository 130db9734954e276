// Shared by the tests of ProcessGroupKolo: each rank's input, and the expected results.
#pragma once

#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <vector>

namespace kolo::test {

using Tensors = std::vector<torch::Tensor>;

inline int size() { return kolo::size(); }
inline int rank() { return kolo::rank(); }
inline bool is_last() { return rank() == size() - 1; }

/// Rank r's input: small whole numbers, which every type holds and whose sum is exact in any order.
inline torch::Tensor input_of(int r, std::int64_t count, torch::ScalarType type = torch::kFloat32) {
  return torch::arange(count).add(r + 1).remainder(5).to(type);
}
inline torch::Tensor mine(std::int64_t count, torch::ScalarType type = torch::kFloat32) {
  return input_of(rank(), count, type);
}
inline Tensors of_all(std::int64_t count, torch::ScalarType type = torch::kFloat32) {
  Tensors all;
  for (int r = 0; r < size(); ++r) all.push_back(input_of(r, count, type));
  return all;
}
inline torch::Tensor sum_of(std::int64_t count, torch::ScalarType type = torch::kFloat32) {
  return torch::stack(of_all(count, type)).sum(0).to(type);
}
/// Rank r's rows: r + 1 of them.
inline torch::Tensor rows_of(int r) { return torch::full({r + 1, 2}, r, torch::kFloat32); }

/// A group of all ranks; each test has its own.
class ProcessGroup : public testing::Test {
 protected:
  c10::intrusive_ptr<kolo::ProcessGroupKolo> group_ = c10::make_intrusive<kolo::ProcessGroupKolo>();
};

}  // namespace kolo::test
