// The data set of the random programs about data: element i is the number i and its square. Some
// elements may be unreadable for a while, or slow; the copies in loaders' workers share this state.
#pragma once

#include "tests/bindings/torch/stress/deal.h"

#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

namespace kolo::test {

constexpr std::int64_t kNone = -1;

class Numbers : public torch::data::datasets::BatchDataset<Numbers, torch::data::Example<>> {
 public:
  explicit Numbers(std::size_t count) : count_(count) {}

  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override {
    const Ids ids(indices.begin(), indices.end());
    for (const std::int64_t id : ids)
      if (id == *unreadable_) throw std::runtime_error("unreadable");
    for (const std::int64_t id : ids)
      if (id == *slow_) std::this_thread::sleep_for(std::chrono::milliseconds(6));
    // Workers finish in another order than they began.
    if (ids.size() % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(ids[0] % 40));
    const torch::Tensor numbers = torch::tensor(ids, torch::kInt64);
    return {torch::stack({numbers, numbers.square()}, 1), numbers};
  }
  std::optional<std::size_t> size() const override { return count_; }

  /// No batch with this element can be read; kNone: all can.
  void make_unreadable(std::int64_t id) { *unreadable_ = id; }
  /// A batch with this element takes long.
  void make_slow(std::int64_t id) { *slow_ = id; }

 private:
  std::size_t count_;
  using Element = std::atomic<std::int64_t>;
  std::shared_ptr<Element> unreadable_ = std::make_shared<Element>(kNone);
  std::shared_ptr<Element> slow_ = std::make_shared<Element>(kNone);
};

inline Ids ids_of(const torch::Tensor& numbers) {
  const torch::Tensor flat = numbers.reshape({-1}).to(torch::kInt64).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

}  // namespace kolo::test
