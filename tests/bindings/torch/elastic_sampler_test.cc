// ElasticSampler: worlds that change within an epoch, with ranks that are only numbers here; and
// one test whose processes do change.
#include "tests/support/sampler_state.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace {

using kolo::test::load;
using kolo::test::saved;
using testing::ElementsAre;

/// Runs `ranks` ranks from `state` ("": from the start) for up to `steps` batches. Adds their
/// elements to `seen` and returns rank 0's state.
std::string world(int ranks, int steps, std::size_t batch, std::size_t count,
                  const std::string& state, std::multiset<std::size_t>& seen) {
  std::string after;
  for (int rank = 0; rank < ranks; ++rank) {
    kolo::ElasticSampler sampler(count, {.seed = 3, .rank = rank, .size = ranks});
    if (!state.empty()) load(sampler, state);
    sampler.reset();
    for (int step = 0; step < steps; ++step) {
      const auto got = sampler.next(batch);
      if (!got) break;
      EXPECT_LE(got->size(), batch);
      seen.insert(got->begin(), got->end());
    }
    if (rank == 0) after = saved(sampler);
  }
  return after;
}

TEST(ElasticSampler, NothingIsLostOrTwiceWhateverTheNumbersOfRanks) {
  for (const std::size_t count : {0U, 1U, 5U, 97U, 100U, 101U}) {
    for (const auto& sizes : std::vector<std::vector<int>>{
             {4, 3}, {3, 4}, {1, 7, 2}, {5, 2, 3, 1}, {2, 2, 2}, {7, 6, 5, 4, 3}}) {
      std::multiset<std::size_t> seen;
      std::string state;
      for (const int ranks : sizes) state = world(ranks, 2, 3, count, state, seen);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size()) << "none comes twice";
      world(3, 1000, 3, count, state, seen);
      EXPECT_EQ(seen.size(), count);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), count);
    }
  }
}

TEST(ElasticSampler, AnotherEpochIsWholeAndAnEndedOneStaysEnded) {
  kolo::ElasticSampler sampler(10, {.rank = 0, .size = 1});
  while (sampler.next(4)) continue;
  EXPECT_EQ(sampler.remaining(), 0U);
  const std::string state = saved(sampler);
  kolo::ElasticSampler resumed(10, {.rank = 0, .size = 2});
  load(resumed, state);
  resumed.reset();
  EXPECT_FALSE(resumed.next(1).has_value());
  resumed.set_epoch(1);
  resumed.reset();
  EXPECT_EQ(resumed.remaining(), 10U);
  EXPECT_EQ(resumed.next(10)->size(), 5U);
  resumed.reset();
  EXPECT_EQ(resumed.num_samples(), 5U);
}

TEST(ElasticSampler, ABatchThatWasNotTrainedOnComesAgain) {
  kolo::ElasticSampler sampler(9, {.shuffle = false, .rank = 0, .size = 1});
  sampler.next(3);
  sampler.next(3);
  EXPECT_EQ(sampler.remaining(), 3U);
  sampler.undo_last_batch();
  EXPECT_EQ(sampler.remaining(), 6U);
  kolo::ElasticSampler other(9, {.shuffle = false, .rank = 1, .size = 2});
  load(other, saved(sampler));
  EXPECT_THAT(*other.next(9), ElementsAre(4, 6, 8));
  kolo::ElasticSampler fresh(9, {.rank = 0, .size = 1});
  fresh.undo_last_batch();
  EXPECT_EQ(fresh.remaining(), 9U);
}

/// The last rank has one element less than the others, either a shorter last batch or no last
/// batch.
TEST(ElasticSampler, GoesOnWhereARootWithFewerElementsIs) {
  const int last = kolo::size() - 1;
  const auto count = static_cast<std::size_t>(2 * kolo::size() - 1);
  for (const std::size_t batch : {2U, 1U}) {
    kolo::ElasticSampler sampler(count);
    std::size_t got = 0;
    for (std::size_t asked = 0; asked < 2; asked += batch) {
      const auto indices = sampler.next(batch);
      got += indices ? indices->size() : 0;
    }
    EXPECT_EQ(got, kolo::rank() == last ? 1U : 2U);
    EXPECT_EQ(sampler.last_batch_size(), std::min(got, batch)) << "of those that came";
    EXPECT_EQ(sampler.remaining(), 0U) << "in batches of " << batch;
    sampler.sync(last);
    EXPECT_EQ(sampler.remaining(), 0U) << "in batches of " << batch;
    sampler.reset();
    EXPECT_FALSE(sampler.next(batch).has_value()) << "in batches of " << batch;
  }
}

/// Whatever the root is: otherwise ranks would deal out the rest of different permutations.
TEST(ElasticSampler, RanksWithOtherDataAreNamedOnAllRanks) {
  if (kolo::size() == 1) GTEST_SKIP() << "for two ranks or more";
  const int odd = kolo::size() - 1;
  const bool is_odd = kolo::rank() == odd;
  const auto expect_refused = [&](kolo::ElasticSampler sampler, const std::string& what) {
    for (const bool begun : {false, true}) {
      if (begun) sampler.next(4);
      try {
        sampler.sync();
        ADD_FAILURE() << "not refused: " << what;
      } catch (const kolo::Exception& error) {
        EXPECT_EQ(error.code(), kolo::ErrorCode::kMismatch);
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("rank " + std::to_string(odd) + " has the " + what));
      }
      kolo::barrier();  // no rank has started another operation
    }
  };
  expect_refused(kolo::ElasticSampler(is_odd ? 101 : 100), "data size 101, but rank 0 has 100");
  expect_refused(kolo::ElasticSampler(100, {.seed = is_odd ? 8U : 7U}), "seed 8, but rank 0 has 7");
  expect_refused(kolo::ElasticSampler(100, {.shuffle = !is_odd}), "shuffle 0, but rank 0 has 1");
}

/// All ranks train on a part, the last rank leaves, the others train on the rest.
TEST(ElasticSampler, TheWorldChanges) {
  const int rank = kolo::rank();
  const int size = kolo::size();
  constexpr std::size_t kCount = 50;
  kolo::ElasticSampler sampler(kCount);
  auto seen = torch::zeros({static_cast<std::int64_t>(kCount)});
  const auto train = [&](std::size_t batches) {
    for (std::size_t i = 0; i < batches; ++i) {
      const auto batch = sampler.next(3);
      if (!batch) return;
      for (const std::size_t index : *batch) seen[static_cast<std::int64_t>(index)] += 1;
    }
  };
  train(3);
  seen = kolo::allreduce(seen);  // leaving ranks take their elements with them
  const auto folder = std::filesystem::temp_directory_path();
  const std::string mine =
      kolo::broadcast_object((folder / ("kolo_elastic_" + std::to_string(getpid()))).string(), 0);
  kolo::shutdown();
  const auto again = [&](const std::string& name, int ranks) {
    kolo::init({.init_method = "file://" + mine + name, .rank = rank, .size = ranks});
  };
  if (rank == 0 || rank < size - 1) {
    again("_fewer", std::max(1, size - 1));
    sampler.sync();
    sampler.reset();
    EXPECT_EQ(sampler.remaining(), kCount - 9 * static_cast<std::size_t>(size));
    const auto before = seen.clone();
    train(kCount);
    const auto all = kolo::allreduce(seen - before) + before;
    EXPECT_TRUE(torch::equal(all, torch::ones_like(all))) << all;
  } else {
    // Ranks meet at their n-th init() in a file, so this rank counts along.
    kolo::init({.init_method = "single://"});
  }
  // A rank that was alone has made another number of optimizers and models; their names must match
  // again.
  const auto trains = [] {
    torch::nn::Linear one(2, 1), other(2, 1);
    kolo::DistributedOptimizer optimizer(torch::optim::SGD(one->parameters(), 0.1),
                                         one->named_parameters());
    kolo::DistributedDataParallel ddp(other);
    optimizer.zero_grad();
    one(torch::ones({1, 2})).sum().backward();
    optimizer.step();
    ddp.forward(torch::ones({1, 2})).sum().backward();
    EXPECT_FLOAT_EQ(other->weight.grad()[0][0].item<float>(), 1);
  };
  if (rank == 0 || rank < size - 1) trains();
  kolo::shutdown();
  again("_all", size);
  trains();
}

}  // namespace
