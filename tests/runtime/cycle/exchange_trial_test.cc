// Runtime::choose_exchange(): the trial at start leaves nothing behind but the limits, which
// Runtime::force_algorithm() replaces.
#include "tests/support/local_world.h"
#include "tests/support/rows.h"
#include "tests/support/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace kolo::test {
namespace {

LocalWorldOptions options_with(Environment::Variables variables) {
  LocalWorldOptions options;
  options.variables = std::move(variables);
  options.variables["KOLO_SHARED_MEMORY"] = "1M";
  options.measured_exchange = std::make_shared<std::vector<MeasuredExchange>>(3);
  return options;
}

/// Sums of all sizes that the trial decides about, in private and in shared memory.
void expect_sums(Runtime& runtime, int size) {
  const auto shared = runtime.allocate(1 << 20);
  ASSERT_TRUE(shared.ok());
  std::vector<float> own(1 << 18);
  for (float* const memory : {own.data(), reinterpret_cast<float*>(shared->get())}) {
    for (std::int64_t count = 1; count <= 1 << 18; count *= 4) {
      std::iota(memory, memory + count, 1.0F);
      auto* const bytes = reinterpret_cast<std::byte*>(memory);
      ASSERT_TRUE(
          runtime.allreduce_ordered(bytes, bytes, count, DataType::kFloat32, ReduceOp::kSum).ok());
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(memory[i], static_cast<float>((i + 1) * size)) << count << " at " << i;
    }
  }
}

TEST(ExchangeTrial, AllRanksTakeTheSameLimits) {
  std::vector<RuntimeInfo> infos(2);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        infos[static_cast<std::size_t>(rank)] = runtime.info();
        EXPECT_EQ(runtime.process_sets(), std::vector<std::uint32_t>{0});
        expect_sums(runtime, 2);
      },
      options_with({}));
  EXPECT_EQ(infos[0].one_shot_bytes, infos[1].one_shot_bytes);
  EXPECT_EQ(infos[0].two_shot_bytes, infos[1].two_shot_bytes);
  EXPECT_EQ(infos[0].two_shot_shared_bytes, infos[1].two_shot_shared_bytes);
  ASSERT_EQ(infos[0].allreduce_times.size(), infos[1].allreduce_times.size());
  for (std::size_t i = 0; i < infos[0].allreduce_times.size(); ++i) {
    const AllreduceTimes& times = infos[0].allreduce_times[i];
    EXPECT_EQ(times.mapped_us, infos[1].allreduce_times[i].mapped_us);
    EXPECT_TRUE(std::isfinite(times.two_shot_us)) << times.bytes;
    EXPECT_EQ(std::isfinite(times.one_shot_us), times.bytes <= 128 << 10) << times.bytes;
  }
}

// A later world of a process does not measure again, if rank 0 has measured as many ranks. Another
// rank may be new, or have measured otherwise.
TEST(ExchangeTrial, AllRanksTakeTheTimesThatRank0Knows) {
  const std::vector<ExchangeTimes> known = {{.bytes = 4096, .two_shot_us = 1, .schedule_us = 2},
                                            {.bytes = 8192, .two_shot_us = 2, .schedule_us = 1}};
  const LocalWorldOptions options = options_with({});
  options.measured_exchange->at(0)[2] = known;
  options.measured_exchange->at(1)[2] = {{.bytes = 4096, .one_shot_us = 1}};
  run_local_world(
      2,
      [&](int, Runtime& runtime) {
        EXPECT_EQ(runtime.info().two_shot_bytes, 4096);
        EXPECT_EQ(runtime.info().allreduce_times.size(), 2);
        expect_sums(runtime, 2);
      },
      options);
}

TEST(ExchangeTrial, EachRankNotesWhatWasMeasured) {
  const LocalWorldOptions options = options_with({});
  std::vector<std::size_t> rows(2);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        rows[static_cast<std::size_t>(rank)] = runtime.info().allreduce_times.size();
      },
      options);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}})
    EXPECT_EQ(options.measured_exchange->at(rank)[2].size(), rows[rank]);
}

// The world's calls are numbered from 0 and meet nothing of the trial in the control segments.
TEST(ExchangeTrial, RanksThatMakeDifferentCallsAreStillTold) {
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(rank == 0 ? 2000 : 3000);
        auto* const bytes = reinterpret_cast<std::byte*>(values.data());
        const Status status =
            runtime.allreduce_ordered(bytes, bytes, static_cast<std::int64_t>(values.size()),
                                      DataType::kFloat32, ReduceOp::kSum);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("2000"), std::string::npos) << status.error().message;
        EXPECT_NE(status.error().message.find("3000"), std::string::npos) << status.error().message;
      },
      options_with({}));
}

TEST(ExchangeTrial, FurtherSetsHaveTheirPartitions) {
  LocalWorldOptions options = options_with({});
  options.process_sets = {{0}, {1}};
  run_local_world(
      2,
      [&](int, Runtime& runtime) {
        EXPECT_EQ(runtime.process_sets(), (std::vector<std::uint32_t>{0, 1, 2}));
        expect_sums(runtime, 2);
      },
      options);
}

/// The algorithm of an in-order all-reduce of 8 KiB.
std::string algorithm_of(const Runtime& runtime, bool shared) {
  std::string algorithm;
  for (const RouteInfo& row : runtime.info().routes)
    if (row.call == "allreduce" && row.mode == "in-order" && row.shared == shared &&
        row.from_bytes <= 8 << 10)
      algorithm = row.algorithm;
  return algorithm;
}

TEST(ExchangeTrial, AnAlgorithmCanBeForcedForSomeCalls) {
  for (const char* const at_start : {"auto", "ring"}) {
    run_local_world(
        3,
        [&](int, Runtime& runtime) {
          const std::string chosen = algorithm_of(runtime, true);
          for (const std::string name : {"one_shot", "two_shot", "mapped", "ring", "double_tree"}) {
            runtime.force_algorithm(name);
            EXPECT_EQ(algorithm_of(runtime, false), name);
            EXPECT_EQ(algorithm_of(runtime, true), name);
            expect_sums(runtime, 3);
          }
          runtime.force_algorithm("");
          EXPECT_EQ(algorithm_of(runtime, true), chosen);
          expect_sums(runtime, 3);
        },
        options_with({{"KOLO_ALGORITHM", at_start}}));
  }
}

// An operation keeps the route of the call before, for one that is equal.
TEST(ExchangeTrial, EqualCallsTakeTheForcedAlgorithm) {
  const TemporaryFolder folder;
  run_local_world(
      3,
      [&](int, Runtime& runtime) {
        for (const char* const name : {"ring", "double_tree", "ring"}) {
          runtime.force_algorithm(name);
          for (int call = 0; call < 2; ++call) {
            std::vector<float> values(30'000, 1);
            ASSERT_DONE(submit(runtime, allreduce_of("values", values)));
            EXPECT_EQ(values.back(), 3);
          }
        }
      },
      options_with({{"KOLO_TIMELINE", folder.path("trace.json")}}));
  std::vector<std::string> algorithms;
  for (const auto& operation : select(read_trace(folder.path("trace.0.json")), "cat", "operation"))
    algorithms.push_back(operation.at("name"));
  EXPECT_THAT(algorithms,
              testing::ElementsAre("allreduce_ring", "allreduce_ring", "allreduce_double_tree",
                                   "allreduce_double_tree", "allreduce_ring", "allreduce_ring"));
}

TEST(ExchangeTrial, ConstantsDecideWhereResultsOrCoresAskForThem) {
  for (const auto& [size, variables] :
       {std::pair(2, Environment::Variables{{"KOLO_DETERMINISTIC", "1"}}),
        std::pair(2, Environment::Variables{{"KOLO_ALGORITHM", "ring"}}),
        std::pair(2, Environment::Variables{{"KOLO_SHARED_MEMORY", "0"}, {"KOLO_ARENA", "0"}})}) {
    LocalWorldOptions options = options_with({});
    for (const auto& [name, value] : variables) options.variables[name] = value;
    run_local_world(
        size,
        [&, size = size](int, Runtime& runtime) {
          EXPECT_TRUE(runtime.info().allreduce_times.empty());
          expect_sums(runtime, size);
        },
        options);
  }
}

}  // namespace
}  // namespace kolo::test
