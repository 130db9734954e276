// Both samplers, with ranks that are only numbers here: no test needs the other processes.
#include "tests/support/message_of.h"
#include "tests/support/sampler_state.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

using kolo::test::load;
using kolo::test::message_of;
using kolo::test::saved;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::size_t> drain(kolo::RankSampler& sampler, std::size_t batch_size = 4) {
  std::vector<std::size_t> all;
  while (const auto batch = sampler.next(batch_size)) {
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

TEST(RankSampler, TenThousandOnSevenRanks) {
  std::multiset<std::size_t> padded;
  std::multiset<std::size_t> evaluated;
  for (int rank = 0; rank < 7; ++rank) {
    kolo::DistributedSampler sampler(10'000, {.rank = rank, .size = 7});
    EXPECT_EQ(sampler.total_size(), 10'003U);
    EXPECT_EQ(sampler.num_samples(), 1429U);
    kolo::DistributedEvalSampler eval(10'000, {.rank = rank, .size = 7});
    EXPECT_EQ(eval.total_size(), 10'000U);
    EXPECT_EQ(eval.num_samples(), rank < 4 ? 1429U : 1428U);
    for (const std::size_t i : drain(sampler, 64)) padded.insert(i);
    for (const std::size_t i : drain(eval, 64)) evaluated.insert(i);
  }
  EXPECT_EQ(padded.size(), 10'003U);
  EXPECT_EQ(std::set(padded.begin(), padded.end()).size(), 10'000U);
  EXPECT_EQ(evaluated.size(), 10'000U);
  EXPECT_EQ(std::set(evaluated.begin(), evaluated.end()).size(), 10'000U);
}

TEST(RankSampler, EvaluationGivesEachElementOnce) {
  for (const std::size_t count : {0U, 1U, 6U, 7U, 100U}) {
    for (const bool shuffle : {false, true}) {
      std::multiset<std::size_t> seen;
      for (int rank = 0; rank < 7; ++rank) {
        kolo::DistributedEvalSampler sampler(count, {.shuffle = shuffle, .rank = rank, .size = 7});
        EXPECT_EQ(sampler.num_batches(4, false), (sampler.num_samples() + 3) / 4);
        const auto share = drain(sampler);
        EXPECT_EQ(share.size(), sampler.num_samples());
        EXPECT_EQ(sampler.last_batch_padding(), 0U);
        seen.insert(share.begin(), share.end());
      }
      EXPECT_EQ(seen.size(), count);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), count);
    }
  }
}

TEST(RankSampler, CopiesShareTheirState) {
  kolo::DistributedEvalSampler sampler(50, {.shuffle = true, .rank = 1, .size = 2});
  kolo::DistributedEvalSampler copy = sampler;
  const auto first = drain(copy);
  EXPECT_FALSE(sampler.next(1).has_value());
  sampler.set_epoch(1);
  copy.reset();
  EXPECT_NE(drain(copy), first);
}

TEST(RankSampler, PaddingIsInTheLastBatchOfTheLastRanks) {
  for (int rank = 0; rank < 4; ++rank) {
    kolo::DistributedSampler sampler(9, {.rank = rank, .size = 4});  // 12 in all: 3 are padding
    EXPECT_EQ(sampler.last_batch_size(), 0U);
    sampler.next(2);
    EXPECT_EQ(sampler.last_batch_size(), 2U);
    EXPECT_EQ(sampler.last_batch_padding(), 0U);
    sampler.next(2);
    EXPECT_EQ(sampler.last_batch_size(), 1U);
    EXPECT_EQ(sampler.last_batch_padding(), rank == 0 ? 0U : 1U);
    sampler.set_received(1);
    EXPECT_EQ(sampler.last_batch_padding(), 0U) << "the second batch is only read ahead";
  }
}

TEST(RankSampler, GoesOnWhereItWasSaved) {
  const kolo::DistributedSamplerOptions options{.seed = 5, .rank = 1, .size = 3};
  kolo::DistributedSampler sampler(100, options);
  sampler.set_epoch(2);
  sampler.reset();
  sampler.next(10);
  const std::string state = saved(sampler);
  const auto rest = drain(sampler);

  kolo::DistributedSampler resumed(100, options);
  load(resumed, state);
  EXPECT_EQ(resumed.epoch(), 2U);
  EXPECT_EQ(saved(resumed), state) << "before the first batch, too";
  resumed.reset();  // by the loader
  EXPECT_EQ(drain(resumed), rest);
  resumed.reset();
  EXPECT_EQ(drain(resumed).size(), resumed.num_samples()) << "the next pass is whole";

  load(resumed, state);
  resumed.set_epoch(2);
  resumed.reset();
  EXPECT_EQ(drain(resumed), rest) << "choosing the same epoch changes nothing";
  load(resumed, state);
  resumed.set_epoch(3);
  resumed.reset();
  EXPECT_EQ(drain(resumed).size(), resumed.num_samples()) << "another epoch starts at its start";
}

/// Reads one element at a time: the shares of a global batch may be taken in any sizes.
std::vector<std::size_t> drain_by_one(kolo::RankSampler& sampler) {
  std::vector<std::size_t> all;
  while (const auto batch = sampler.next(1)) all.insert(all.end(), batch->begin(), batch->end());
  return all;
}

TEST(RankSampler, AnEpochThatHadEndedHasNoRest) {
  for (const kolo::DistributedSamplerOptions& options :
       std::vector<kolo::DistributedSamplerOptions>{
           {.rank = 0, .size = 3},
           {.drop_last = true, .rank = 0, .size = 3},
           {.global_batch = 8, .rank = 0, .size = 3},
           {.drop_last = true, .global_batch = 8, .rank = 0, .size = 3}}) {
    kolo::DistributedSampler sampler(10, options);
    sampler.set_epoch(3);
    sampler.reset();
    drain_by_one(sampler);
    const std::string state = saved(sampler);
    for (const int size : {1, 2, 3, 7}) {
      for (int rank = 0; rank < size; ++rank) {
        auto others = options;
        others.rank = rank;
        others.size = size;
        kolo::DistributedSampler resumed(10, others);
        load(resumed, state);
        EXPECT_EQ(saved(resumed), state) << "before the first batch, too";
        resumed.set_epoch(3);
        resumed.reset();
        EXPECT_EQ(drain_by_one(resumed).size(), 0U) << rank << " of " << size;
        resumed.set_epoch(4);
        resumed.reset();
        EXPECT_EQ(drain_by_one(resumed).size(), resumed.num_samples()) << "another epoch is whole";
        kolo::DistributedSampler larger(30, others);
        load(larger, state);  // no rest is left, so the data may be different
        larger.reset();
        EXPECT_EQ(drain_by_one(larger).size(), 0U);
      }
    }
    sampler.set_epoch(4);
    kolo::DistributedSampler next(10, options);
    load(next, saved(sampler));
    next.reset();
    EXPECT_EQ(next.epoch(), 4U);
    EXPECT_EQ(drain_by_one(next).size(), next.num_samples()) << "an epoch that was only chosen";
  }
}

/// The elements that are trained on before rank 0 saves, and after other ranks load the state.
template <class Make>
std::multiset<std::size_t> trained(Make make, int before, int after) {
  std::multiset<std::size_t> seen;
  std::string state;
  for (int rank = 0; rank < before; ++rank) {
    auto sampler = make(rank, before);
    for (int i = 0; i < 2; ++i) {
      const std::size_t size = sampler.global_batch() > 0 ? 1 : 6;
      const auto batch = sampler.next(size).value_or(std::vector<std::size_t>());
      seen.insert(batch.begin(), batch.end());
    }
    if (rank == 0) state = saved(sampler);
  }
  for (int rank = 0; rank < after; ++rank) {
    auto sampler = make(rank, after);
    load(sampler, state);
    sampler.reset();
    for (const std::size_t index : drain(sampler)) seen.insert(index);
  }
  return seen;
}

TEST(RankSampler, GoesOnWithAnotherNumberOfRanks) {
  const auto shares = [](int rank, int size) {
    return kolo::DistributedSampler(60, {.seed = 1, .rank = rank, .size = size});
  };
  const auto global = [](int rank, int size) {
    return kolo::DistributedSampler(60,
                                    {.seed = 1, .global_batch = 16, .rank = rank, .size = size});
  };
  const auto evaluation = [](int rank, int size) {
    return kolo::DistributedEvalSampler(60, {.shuffle = true, .rank = rank, .size = size});
  };
  for (const int before : {1, 2, 3}) {
    for (const int after : {1, 2, 3, 4}) {
      EXPECT_EQ(trained(shares, before, after).size(), 60U);  // 12 to 36 were trained before
      EXPECT_EQ(trained(evaluation, before, after).size(), 60U);
      const auto seen = trained(global, before, after);
      EXPECT_EQ(seen.size(), 60U) << before << " to " << after;
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 60U) << before << " to " << after;
    }
  }
}

/// The second rank has one element less than the first, or none of a last global batch.
TEST(RankSampler, GoesOnWhereARankWithFewerElementsWasSaved) {
  const auto shares = [](int rank, int size) {
    return kolo::DistributedEvalSampler(5, {.rank = rank, .size = size});
  };
  const auto global = [](int rank, int size) {
    return kolo::DistributedSampler(
        5, {.shuffle = false, .global_batch = 2, .rank = rank, .size = size});
  };
  const auto expect_rest = [](const auto& make) {
    auto sampler = make(1, 2);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(sampler.next(1).has_value());
    auto alone = make(0, 1);
    load(alone, saved(sampler));
    alone.reset();
    EXPECT_THAT(drain(alone, 1), testing::ElementsAre(4)) << "the other rank has not got it";
    EXPECT_FALSE(sampler.next(1).has_value());
    EXPECT_EQ(sampler.last_batch_size(), 1U);
    load(alone, saved(sampler));
    alone.reset();
    EXPECT_FALSE(alone.next(1).has_value()) << "the other rank has got it meanwhile";
  };
  expect_rest(shares);
  expect_rest(global);
}

TEST(RankSampler, RefusesTheRestOfOtherData) {
  kolo::DistributedSampler sampler(100, {.seed = 5, .rank = 0, .size = 1});
  sampler.next(10);
  const std::string state = saved(sampler);
  kolo::DistributedSampler smaller(90, {.seed = 5, .rank = 0, .size = 1});
  EXPECT_THAT(message_of([&] { load(smaller, state); }),
              HasSubstr("with the data size 100, but this sampler's is 90"));
  kolo::DistributedSampler other(100, {.seed = 6, .rank = 0, .size = 1});
  EXPECT_THAT(message_of([&] { load(other, state); }),
              HasSubstr("with the seed 5, but this sampler's is 6"));
  kolo::DistributedSampler in_order(100, {.shuffle = false, .seed = 5, .rank = 0, .size = 1});
  EXPECT_THAT(message_of([&] { load(in_order, state); }),
              HasSubstr("with the shuffle 1, but this sampler's is 0"));
}

TEST(RankSampler, RefusesRanksThatDoNotExist) {
  EXPECT_THAT(message_of([] { kolo::DistributedEvalSampler sampler(10, {.rank = 3, .size = 3}); }),
              HasSubstr("DistributedEvalSampler: rank 3 of 3 ranks does not exist"));
}

TEST(RankSampler, BatchesOfNoElementsCannotBeCounted) {
  const kolo::DistributedSampler sampler(10, {.rank = 0, .size = 1});
  EXPECT_THAT(message_of([&] { static_cast<void>(sampler.num_batches(0, false)); }),
              HasSubstr("DistributedSampler: batches of 0 elements"));
  EXPECT_EQ(sampler.num_batches(3, false), 4U);
  const kolo::DistributedSampler global(10, {.global_batch = 5, .rank = 0, .size = 1});
  EXPECT_EQ(global.num_global_batches(), 2);
  EXPECT_EQ(
      kolo::DistributedSampler(11, {.global_batch = 5, .rank = 2, .size = 3}).num_global_batches(),
      3);
  EXPECT_EQ(global.num_batches(0, false), 2U) << "overruled";
}

TEST(RankSampler, MoreThanAShareOfAGlobalBatchIsRefusedOnEveryRank) {
  for (int rank = 0; rank < 3; ++rank) {
    kolo::DistributedSampler sampler(32, {.global_batch = 16, .rank = rank, .size = 3});
    // With drop_last, LibTorch's loader would drop all batches as too small.
    for (const std::size_t size : {6U, 16U}) {
      EXPECT_THAT(message_of([&] { sampler.next(size); }),
                  AllOf(HasSubstr("DistributedSampler: asked for " + std::to_string(size)),
                        HasSubstr("a global batch of 16 is 5; leave batch_size at 1")));
    }
    EXPECT_EQ(sampler.next(5)->size(), rank == 0 ? 6U : 5U);
    EXPECT_EQ(sampler.next(1)->size(), rank == 0 ? 6U : 5U);
  }
  kolo::DistributedSampler scarce(4, {.global_batch = 2, .rank = 1, .size = 2});
  EXPECT_EQ(scarce.next(1)->size(), 1U);
}

}  // namespace
