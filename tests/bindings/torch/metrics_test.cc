#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace {

using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

torch::Tensor as_tensor(const std::vector<std::size_t>& indices, torch::ScalarType type) {
  return torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kInt64)
      .to(type);
}

/// The elements that a pass over `sampler` gathers, sorted.
torch::Tensor gathered(kolo::RankSampler& sampler, torch::ScalarType type) {
  std::vector<torch::Tensor> all;
  while (const auto batch = sampler.next(4)) {
    all.push_back(kolo::gather_for_metrics(as_tensor(*batch, type), sampler));
  }
  return std::get<0>(torch::cat(all).sort());
}

TEST(Metrics, APaddedPassGathersEachElementOnce) {
  for (const std::int64_t count : {1, 7, 24, 29}) {
    kolo::DistributedSampler sampler(static_cast<std::size_t>(count));
    EXPECT_TRUE(torch::equal(gathered(sampler, torch::kInt64), torch::arange(count)));
    sampler.reset();
    EXPECT_TRUE(
        torch::equal(gathered(sampler, torch::kInt16), torch::arange(count, torch::kInt16)));
  }
}

TEST(Metrics, WorkersThatReadAheadLoseNoRow) {
  struct Counting : torch::data::datasets::BatchDataset<Counting, torch::Tensor> {
    torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
      return as_tensor(indices.vec(), torch::kInt64);
    }
    std::optional<std::size_t> size() const override { return 29; }
  };
  kolo::DistributedSampler sampler(29);
  auto loader = kolo::data_loader(Counting(), sampler, {.batch_size = 4, .workers = 2});
  std::vector<torch::Tensor> all;
  for (auto& batch : loader) all.push_back(kolo::gather_for_metrics(batch, sampler));
  EXPECT_TRUE(torch::equal(std::get<0>(torch::cat(all).sort()), torch::arange(29)));
}

TEST(Metrics, RowsMayHaveAnyShape) {
  kolo::DistributedEvalSampler sampler(static_cast<std::size_t>(2 * kolo::size() + 1));
  const auto batch = sampler.next(100);
  const auto rows = torch::full({static_cast<std::int64_t>(batch->size()), 2, 3}, kolo::rank());
  EXPECT_EQ(kolo::gather_for_metrics(rows, sampler).sizes(),
            (std::vector<std::int64_t>{2 * kolo::size() + 1, 2, 3}));
  const auto none = kolo::gather_for_metrics(rows.slice(0, 0, 0), sampler);
  EXPECT_EQ(none.size(0), 0) << "a rank that has run out takes part with no rows";
}

TEST(Metrics, MisuseIsNamed) {
  kolo::DistributedSampler sampler(static_cast<std::size_t>(4 * kolo::size()));
  sampler.next(4);
  EXPECT_THAT(message_of([&] { kolo::gather_for_metrics(torch::zeros({3}), sampler); }),
              AllOf(HasSubstr("has 3 rows, but the last batch of this rank's sampler has 4"),
                    HasSubstr("read by kolo::data_loader if there are workers")));
  EXPECT_THAT(message_of([&] { kolo::gather_for_metrics(torch::tensor(1.0), sampler); }),
              HasSubstr("this one has no rows"));
  if (kolo::size() == 1) return;
  const auto rows = torch::zeros({kolo::rank() == 1 ? 3 : 4});
  EXPECT_THAT(message_of([&] { kolo::gather_for_metrics(rows, sampler); }),
              AllOf(HasSubstr("rank 1"), HasSubstr("has 3 rows")))
      << "on every rank";
  const auto odd = torch::zeros({4, 2 + kolo::rank()});
  EXPECT_THAT(message_of([&] { kolo::gather_for_metrics(odd, sampler, {.name = "logits"}); }),
              HasSubstr("'logits': rank 0 passed Float [4, 2], but rank 1 passed Float [4, 3]"));
  EXPECT_EQ(kolo::metric_average(1.0), 1.0) << "still usable";
}

TEST(Metrics, Average) {
  EXPECT_DOUBLE_EQ(kolo::metric_average(kolo::rank() + 1.0, "accuracy"), (kolo::size() + 1) / 2.0);
}

TEST(Metrics, AMeterWeighsByTheSamples) {
  kolo::Meter meter;
  EXPECT_TRUE(std::isnan(meter.total().mean()));
  // Rank r has r batches of r + 1 samples whose mean is r.
  double sum = 0;
  std::int64_t count = 0;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    for (int i = 0; i < rank; ++i) {
      if (rank == kolo::rank()) meter.add(rank, rank + 1);
      sum += static_cast<double>(rank * (rank + 1));
      count += rank + 1;
    }
  }
  meter.add(std::nan(""), 0);  // the loss of an empty batch
  EXPECT_THAT(message_of([&] { meter.add(1, -2); }), HasSubstr("a count of -2"));
  EXPECT_EQ(meter.total().count, count);
  EXPECT_DOUBLE_EQ(meter.total().sum, sum);
  EXPECT_EQ(meter.local_count(), kolo::rank() * (kolo::rank() + 1));
  meter.reset();
  meter.add(3.0);
  EXPECT_DOUBLE_EQ(meter.total().mean(), 3.0);
}

}  // namespace
