// Collectives of ranks on several hosts, emulated by threads of one process: every layout, with and
// without windows, with two levels and with the chosen algorithm.
#include "tests/support/averages.h"
#include "tests/support/rows.h"
#include "tests/support/sanitizers.h"
#include "tests/support/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace kolo::test::hosts_test {
namespace {

using Layout = std::vector<int>;

const std::vector<Layout> kLayouts = {{0, 0, 1, 1},       {0, 1, 0, 1}, {0, 0, 0, 1, 1},
                                      {0, 1, 1, 2, 0, 1}, {0, 1},       {0, 0, 0, 1}};

/// Parameters: layout, KOLO_SHARED_MEMORY and KOLO_ALGORITHM.
class HostWorlds
    : public testing::TestWithParam<std::tuple<std::size_t, std::string, std::string>> {
 protected:
  const Layout& layout() const { return kLayouts[std::get<0>(GetParam())]; }
  int size() const { return static_cast<int>(layout().size()); }
  LocalWorldOptions options() const {
    LocalWorldOptions options;
    options.variables = {{"KOLO_SHARED_MEMORY", std::get<1>(GetParam())},
                         {"KOLO_ALGORITHM", std::get<2>(GetParam())}};
    options.hosts = layout();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, HostWorlds,
                         testing::Combine(testing::Range(std::size_t{0}, kLayouts.size()),
                                          testing::ValuesIn(fewer_if_sanitized({"0", "512K",
                                                                                "16M"})),
                                          testing::Values("hierarchical", "auto")));

constexpr std::size_t kMiddle = kSanitized ? 150'001 : 300'001;
constexpr std::size_t kLarge = kSanitized ? 300'007 : 700'003;
constexpr std::size_t kCounts[] = {1, 0, 7, 1000, 64 << 10, kMiddle, kLarge, 33};

TEST_P(HostWorlds, LargeFusedAndScaledSumsAreRightAndAlike) {
  check_averages(size(), kCounts, options());
}

// Each rank's memory is in the arena or not: the host's peers read and write arena memory in place.
TEST_P(HostWorlds, SharedAndPrivateMemoryMix) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        constexpr std::size_t kCount = kSanitized ? 70'001 : 200'003;
        for (int round = 0; round < 4; ++round) {
          const bool shared = round == 3 || (rank + round) % 2 == 0;
          const auto memory =
              shared
                  ? std::reinterpret_pointer_cast<float>(*runtime.allocate(kCount * sizeof(float)))
                  : std::shared_ptr<float>(new float[kCount], std::default_delete<float[]>());
          const Values values = random_values(kCount, rank, 5);
          std::copy(values.begin(), values.end(), memory.get());
          Submission submission;
          submission.name = "round" + std::to_string(round);
          submission.signature.shape = {kCount};
          submission.input = reinterpret_cast<const std::byte*>(memory.get());
          submission.output = reinterpret_cast<std::byte*>(memory.get());
          ASSERT_TRUE(submit(runtime, std::move(submission))->wait().ok());
          SCOPED_TRACE(submission.name);
          ASSERT_NO_FATAL_FAILURE(
              expect_near({memory.get(), kCount}, random_sums(kCount, size(), 5)));
        }
      },
      options());
}

// Elements from another host are added to inputs that are scaled first.
TEST_P(HostWorlds, ScaledReduceScattersAreRight) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        constexpr std::int64_t kPart = 20'011;
        const auto value = [](int of, std::int64_t i) {
          return static_cast<float>((of + 1) * (i % 7 + 1));
        };
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
          Rows<float> rows;
          for (std::int64_t i = 0; i < kPart * size(); ++i) rows.input.push_back(value(rank, i));
          Submission call = rows_of(OperationKind::kReduceScatter, std::string(to_string(op)), rows,
                                    {kPart * size()});
          call.signature.op = op;
          call.signature.prescale = 2;
          call.signature.postscale = 3;
          ASSERT_DONE(submit(runtime, std::move(call)));
          ASSERT_EQ(rows.output.size(), static_cast<std::size_t>(kPart));
          const float ranks = op == ReduceOp::kMax ? static_cast<float>(size())
                              : op == ReduceOp::kAverage
                                  ? static_cast<float>(size() + 1) / 2
                                  : static_cast<float>(size() * (size() + 1)) / 2;
          for (std::int64_t i = 0; i < kPart; ++i)
            ASSERT_NEAR(rows.output[static_cast<std::size_t>(i)],
                        6 * ranks * value(0, rank * kPart + i), 1e-4)
                << to_string(op) << ' ' << i;
        }
      },
      options());
}

// Sets run at once and share ranks; each has its own layout and its own slots. One rank is alone on
// its host in a set, another in the world.
TEST_P(HostWorlds, ProcessSetsHaveTwoLevelsToo) {
  LocalWorldOptions with_sets = options();
  const int last = size() - 1;
  with_sets.process_sets = {{0}, {last}};
  if (size() > 2) with_sets.process_sets = {{0, last}, {0, 1, last}};
  if (size() > 3) with_sets.process_sets.push_back({1, 2, last});
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        constexpr std::size_t kCount = kSanitized ? 70'001 : 200'003;
        std::vector<Values> values;
        std::vector<std::shared_ptr<Work>> works;
        values.reserve(3 * with_sets.process_sets.size());
        const auto is_member = [&](const std::vector<int>& set) {
          return std::find(set.begin(), set.end(), rank) != set.end();
        };
        for (int round = 0; round < 3; ++round)
          for (std::size_t i = 0; i < with_sets.process_sets.size(); ++i) {
            if (!is_member(with_sets.process_sets[i])) continue;
            values.emplace_back(kCount, static_cast<float>(rank + 1));
            Submission submission = allreduce_of("round" + std::to_string(round), values.back());
            submission.process_set = static_cast<std::uint32_t>(i + 1);
            works.push_back(submit(runtime, std::move(submission)));
          }
        auto next = values.begin();
        auto work = works.begin();
        for (int round = 0; round < 3; ++round)
          for (const auto& set : with_sets.process_sets) {
            if (!is_member(set)) continue;
            ASSERT_TRUE((*work++)->wait().ok());
            const int sum = std::accumulate(set.begin(), set.end(), static_cast<int>(set.size()));
            const auto wrong = std::find_if(next->begin(), next->end(), [&](float value) {
              return value != static_cast<float>(sum);
            });
            ASSERT_EQ(wrong - next->begin(), static_cast<std::ptrdiff_t>(kCount));
            ++next;
          }
      },
      with_sets);
}

// A pipeline slot must have room for pieces that are worth it: a reduce-scatter's slot has four
// pieces, the others' two.
TEST(HostWorld, TwoLevelsCarryWhatIsLarge) {
  constexpr std::int64_t kCount = 1'200'000;
  for (const auto& [memory, sums] : {std::pair("512K", "reduce_scatter_hierarchical"),
                                     std::pair("256K", "reduce_scatter_ring")}) {
    const TemporaryFolder folder;
    LocalWorldOptions options;
    options.variables = {{"KOLO_SHARED_MEMORY", memory},
                         {"KOLO_TIMELINE", folder.path("trace.json")}};
    options.hosts = {0, 0, 1, 1};
    run_local_world(
        4,
        [&](int rank, Runtime& runtime) {
          for (const OperationKind kind : {OperationKind::kBroadcast, OperationKind::kAllgather,
                                           OperationKind::kReduceScatter}) {
            Rows<float> rows;
            rows.input.assign(kCount, static_cast<float>(rank + 1));
            rows.output.resize(kCount);  // for the broadcast, whose shape is known
            Submission call = rows_of(kind, std::to_string(static_cast<int>(kind)), rows, {kCount});
            if (kind == OperationKind::kBroadcast)
              call.output = reinterpret_cast<std::byte*>(rows.output.data());
            ASSERT_DONE(submit(runtime, std::move(call)));
            const float last = kind == OperationKind::kBroadcast   ? 1.0F
                               : kind == OperationKind::kAllgather ? 4.0F
                                                                   : 10.0F;
            EXPECT_EQ(rows.output.back(), last);
          }
        },
        options);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<std::string> algorithms;
      const auto trace = read_trace(folder.path("trace." + std::to_string(rank) + ".json"));
      for (const auto& operation : select(trace, "cat", "operation"))
        algorithms.push_back(operation.at("name"));
      EXPECT_THAT(algorithms, testing::UnorderedElementsAre("broadcast_hierarchical",
                                                            "allgather_hierarchical", sums))
          << memory;
    }
  }
}

// The probes of loopback links do not describe a network; a requested algorithm is named.
TEST(HostWorld, InfoNamesTheChoice) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_ALGORITHM", "hierarchical"}};
  options.hosts = {0, 0, 1};
  run_local_world(
      3,
      [&](int, Runtime& runtime) {
        const RuntimeInfo info = runtime.info();
        ASSERT_EQ(info.allreduces.size(), 1u);
        EXPECT_EQ(info.allreduces.front().algorithm, "hierarchical");
      },
      options);
}

}  // namespace
}  // namespace kolo::test::hosts_test
