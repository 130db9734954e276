#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;

/// Element i is the number i.
class Numbers : public torch::data::datasets::BatchDataset<Numbers, torch::Tensor> {
 public:
  explicit Numbers(std::size_t count) : count_(count) {}
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    return torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kInt64);
  }
  std::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

kolo::DistributedSampler in_order(std::size_t count) {
  return kolo::DistributedSampler(count, {.shuffle = false, .rank = 0, .size = 1});
}

template <class Loader>
std::vector<std::int64_t> sizes_of(Loader& loader) {
  std::vector<std::int64_t> sizes;
  for (auto& batch : loader) sizes.push_back(batch.numel());
  return sizes;
}

TEST(DataLoader, ASamplerThatWasMovedInStillChoosesTheEpoch) {
  kolo::DistributedSampler sampler(23, {.rank = 0, .size = 1});
  auto loader = kolo::data_loader(Numbers(23), std::move(sampler), {.batch_size = 23});
  std::vector<torch::Tensor> epochs;
  for (const std::size_t epoch : {0U, 7U, 0U}) {
    sampler.set_epoch(epoch);  // NOLINT(bugprone-use-after-move): that is what is tested
    for (auto& batch : loader) epochs.push_back(batch);
  }
  EXPECT_FALSE(torch::equal(epochs.at(0), epochs.at(1)));
  EXPECT_TRUE(torch::equal(epochs.at(0), epochs.at(2)));
}

TEST(DataLoader, GivesEveryBatchInOrder) {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    auto loader =
        kolo::data_loader(Numbers(23), in_order(23), {.batch_size = 5, .workers = workers});
    EXPECT_EQ(loader.size(), 5U);
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<torch::Tensor> batches;
      for (auto& batch : loader) batches.push_back(batch);
      EXPECT_TRUE(torch::equal(torch::cat(batches), torch::arange(23))) << workers << " workers";
    }
    auto dropping = kolo::data_loader(Numbers(23), in_order(23),
                                      {.batch_size = 5, .workers = workers, .drop_last = true});
    EXPECT_EQ(sizes_of(dropping), (std::vector<std::int64_t>{5, 5, 5, 5}));
    EXPECT_EQ(dropping.size(), 4U);
  }
}

TEST(DataLoader, APassMayBeLeftEarly) {
  for (const std::size_t workers : {0U, 2U}) {
    auto loader =
        kolo::data_loader(Numbers(20), in_order(20), {.batch_size = 4, .workers = workers});
    for (auto& batch : loader) {
      if (batch[0].item<std::int64_t>() == 4) break;
    }
    EXPECT_EQ(sizes_of(loader).size(), 5U);
  }
}

TEST(DataLoader, SavesTheBatchesThatTheLoopHasGot) {
  for (const std::size_t workers : {0U, 2U}) {
    auto sampler = in_order(40);
    auto loader = kolo::data_loader(Numbers(40), sampler,
                                    {.batch_size = 4, .workers = workers, .prefetch = 3});
    std::stringstream state;
    int batches = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      if (++batches < 3) continue;
      torch::save(sampler, state);
      break;
    }
    auto resumed = in_order(40);
    torch::load(resumed, state);
    auto rest = kolo::data_loader(Numbers(40), resumed, {.batch_size = 4, .workers = workers});
    EXPECT_EQ((*rest.begin())[0].item<std::int64_t>(), 12) << workers << " workers read ahead";
  }
}

/// Cannot read element 5 at the first try.
class Unreadable : public torch::data::datasets::BatchDataset<Unreadable, torch::Tensor> {
 public:
  explicit Unreadable(std::size_t count) : numbers_(count) {}
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    if (std::find(indices.begin(), indices.end(), 5U) != indices.end() && !*has_thrown_) {
      *has_thrown_ = true;
      throw std::runtime_error("unreadable");
    }
    return numbers_.get_batch(indices);
  }
  std::optional<std::size_t> size() const override { return numbers_.size(); }

 private:
  Numbers numbers_;
  std::shared_ptr<std::atomic<bool>> has_thrown_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(DataLoader, ABatchThatCannotBeReadCountsAsGot) {
  for (const std::size_t workers : {0U, 1U}) {
    auto sampler = in_order(13);
    auto loader = kolo::data_loader(Unreadable(13), sampler, {.batch_size = 2, .workers = workers});
    auto at = loader.begin();
    ++at;
    EXPECT_ANY_THROW(++at);
    std::stringstream state;
    for (std::int64_t first = 6; first <= 12; first += 2) {
      if (first == 12) torch::save(sampler, state);
      ++at;
      ASSERT_NE(at, std::default_sentinel);
      EXPECT_EQ((*at)[0].item<std::int64_t>(), first);
      EXPECT_EQ(sampler.last_batch_size(), first == 12 ? 1U : 2U) << workers << " workers";
    }
    auto resumed = in_order(13);
    torch::load(resumed, state);
    auto rest = kolo::data_loader(Numbers(13), resumed, {.batch_size = 2});
    EXPECT_EQ((*rest.begin())[0].item<std::int64_t>(), 12) << workers << " workers";
  }
}

TEST(DataLoader, APassWhoseFirstBatchCannotBeReadBeginsAgain) {
  for (const std::size_t workers : {0U, 1U}) {
    auto sampler = in_order(13), before = in_order(13);
    before.next(4);
    std::stringstream state;
    torch::save(before, state);
    torch::load(sampler, state);
    auto loader = kolo::data_loader(Unreadable(13), sampler, {.batch_size = 2, .workers = workers});
    EXPECT_ANY_THROW(loader.begin());
    EXPECT_EQ((*loader.begin())[0].item<std::int64_t>(), 4) << workers << " workers";
    EXPECT_EQ(sampler.last_batch_size(), 2U);
  }
}

/// Cannot read elements 2 to 4.
class Gap : public torch::data::datasets::BatchDataset<Gap, torch::Tensor> {
 public:
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    // Thrown as by a loader of its own, with workers.
    if (indices[0] >= 2 && indices[0] <= 4)
      throw torch::data::WorkerException(std::make_exception_ptr(std::runtime_error("unreadable")));
    return Numbers(7).get_batch(indices);
  }
  std::optional<std::size_t> size() const override { return 7; }
};

TEST(DataLoader, BatchesThatCannotBeReadDoNotEndThePass) {
  for (const std::size_t workers : {0U, 1U}) {
    auto loader = kolo::data_loader(Gap(), in_order(7), {.workers = workers, .prefetch = 2});
    auto at = loader.begin();
    std::vector<std::int64_t> got;
    int failures = 0;
    while (at != std::default_sentinel) {
      got.push_back(at->item<std::int64_t>());
      for (bool is_read = false; !is_read;) {
        try {
          ++at;
          is_read = true;
        } catch (const std::exception&) {
          ++failures;
        }
      }
    }
    EXPECT_EQ(got, (std::vector<std::int64_t>{0, 1, 5, 6})) << workers << " workers";
    EXPECT_EQ(failures, 3) << workers << " workers";
  }
}

TEST(DataLoader, ABatchThatIsDroppedIsNotTheLastOne) {
  for (const std::size_t workers : {0U, 2U}) {
    for (const std::size_t count : {23U, 3U}) {
      auto sampler = in_order(count);
      auto loader = kolo::data_loader(Numbers(count), sampler,
                                      {.batch_size = 5, .workers = workers, .drop_last = true});
      const auto sizes = sizes_of(loader);
      EXPECT_EQ(sampler.last_batch_size(), sizes.empty() ? 0U : 5U) << workers << " workers";
    }
  }
}

TEST(DataLoader, GlobalBatchesComeAsShares) {
  for (int rank = 0; rank < 3; ++rank) {
    kolo::DistributedSampler sampler(33, {.global_batch = 16, .rank = rank, .size = 3});
    auto loader = kolo::data_loader(Numbers(33), sampler, {.workers = 1});
    const auto sizes = sizes_of(loader);
    EXPECT_EQ(sizes.size(), loader.size());
    EXPECT_EQ(sizes[0], rank == 0 ? 6 : 5);
    EXPECT_EQ(sizes.size(), rank == 0 ? 3U : 2U) << "rank 0 alone has a share of the last element";
  }
}

TEST(DataLoader, TakesLibTorchsSamplers) {
  auto loader =
      kolo::data_loader(Numbers(9), torch::data::samplers::SequentialSampler(9), {.batch_size = 4});
  EXPECT_EQ(sizes_of(loader), (std::vector<std::int64_t>{4, 4, 1}));
}

TEST(DataLoader, MisuseIsNamed) {
  const auto message = [](kolo::DataLoaderOptions options, std::size_t global_batch = 0) {
    return message_of([&] { kolo::loader_options(options, global_batch); });
  };
  EXPECT_THAT(message({.batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(message({.workers = 2, .prefetch = 0}), HasSubstr("its 2 workers would never read"));
  EXPECT_THAT(message({.batch_size = 8}, 64), HasSubstr("global batches of 64"));
  EXPECT_THAT(message({.drop_last = true}, 64), HasSubstr("set drop_last in the sampler's"));
}

}  // namespace
