// Large operations go by the NUMA nodes of a host, if it has several. Ranks are threads in nodes
// that KOLO_NUMA_NODES imposes.
#include "tests/support/arena_memory.h"
#include "tests/support/local_world.h"
#include "tests/support/rows.h"
#include "tests/support/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::numa_nodes_test {
namespace {

constexpr int kRanks = 17;                // nine and eight on two nodes
constexpr std::int64_t kCount = 100'003;  // several blocks in the windows below

class NumaNodes : public ::testing::Test {
 protected:
  void run(const char* nodes, const std::function<void(int rank, Runtime&)>& body,
           const char* deterministic = "0") {
    run_local_world(kRanks, body,
                    {.variables = {{"KOLO_NUMA_NODES", nodes},
                                   {"KOLO_DETERMINISTIC", deterministic},
                                   {"KOLO_SHARED_MEMORY", "1M"},
                                   {"KOLO_TIMELINE", folder_.path("trace.json")}}});
  }
  /// Rank 0's operations.
  std::vector<std::string> algorithms() const {
    std::vector<std::string> names;
    for (const auto& operation :
         select(read_trace(folder_.path("trace.0.json")), "cat", "operation"))
      names.push_back(operation.at("name"));
    return names;
  }

 private:
  const TemporaryFolder folder_;
};

void expect_sum(Runtime& runtime, int rank, const std::shared_ptr<float>& values,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values.get()[i] = static_cast<float>(i % 1000 + rank);
  Submission submission;
  submission.name = "values";
  submission.signature.shape = {count};
  submission.input = submission.output = reinterpret_cast<std::byte*>(values.get());
  submission.signature.prescale = 0.5;
  submission.signature.postscale = 4;
  ASSERT_DONE(submit(runtime, std::move(submission)));
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(values.get()[i], 2.0F * kRanks * static_cast<float>(i % 1000 + kRanks / 2)) << i;
}

TEST_F(NumaNodes, LargeSumsGoByThem) {
  run("2", [&](int rank, Runtime& runtime) {
    for (const bool shared : {false, true})
      for (const std::int64_t count : {kCount, std::int64_t{1000}})
        expect_sum(runtime, rank, floats(runtime, static_cast<std::size_t>(count), shared), count);
  });
  EXPECT_THAT(algorithms(), testing::ElementsAre("allreduce_numa", "allreduce_mapped",
                                                 "allreduce_numa", "allreduce_mapped"));
}

TEST_F(NumaNodes, OneNodeOrFewRanksANodeAreFlat) {
  for (const char* const nodes : {"1", "3"}) {
    run(nodes, [&](int rank, Runtime& runtime) {
      expect_sum(runtime, rank, floats(runtime, kCount, false), kCount);
    });
    EXPECT_THAT(algorithms(), testing::ElementsAre("allreduce_mapped")) << nodes;
  }
}

// Their partial sums need more bits than the windows have room for.
TEST_F(NumaNodes, HalfTypesAreFlat) {
  run("2", [&](int, Runtime& runtime) {
    std::vector<std::uint16_t> values(kCount, 0x3F80);  // 1
    Submission submission;
    submission.name = "values";
    submission.signature.type = DataType::kBFloat16;
    submission.signature.shape = {kCount};
    submission.input = submission.output = reinterpret_cast<std::byte*>(values.data());
    ASSERT_DONE(submit(runtime, std::move(submission)));
    EXPECT_THAT(values, testing::Each(0x4188));  // 17
  });
  EXPECT_THAT(algorithms(), testing::ElementsAre("allreduce_mapped"));
}

// Else an element's sum would depend on what it is fused with.
TEST_F(NumaNodes, DeterministicSumsAreFlat) {
  const auto body = [&](int rank, Runtime& runtime) {
    expect_sum(runtime, rank, floats(runtime, kCount, false), kCount);
  };
  run("2", body, /*deterministic=*/"1");
  EXPECT_THAT(algorithms(), testing::ElementsAre("allreduce_mapped"));
}

TEST_F(NumaNodes, FusedTensorsAndAverages) {
  run("2", [&](int rank, Runtime& runtime) {
    std::vector<std::vector<float>> tensors;
    std::vector<Submission> submissions;
    for (int i = 0; i < 9; ++i)
      tensors.emplace_back(10'000 + 777 * i, static_cast<float>(rank + i));
    for (int i = 0; i < 9; ++i)
      submissions.push_back(allreduce_of("tensor " + std::to_string(i),
                                         tensors[static_cast<std::size_t>(i)], ReduceOp::kAverage));
    const auto works = runtime.submit_group(std::move(submissions), "group");
    ASSERT_TRUE(works.ok()) << works.error().message;
    for (const auto& work : *works) ASSERT_DONE(work);
    for (int i = 0; i < 9; ++i)
      EXPECT_THAT(tensors[static_cast<std::size_t>(i)],
                  testing::Each(static_cast<float>(kRanks / 2 + i)));
  });
  EXPECT_THAT(algorithms(), testing::Contains("allreduce_numa"));
}

TEST_F(NumaNodes, LargeBroadcastsGoByThem) {
  run("2", [&](int rank, Runtime& runtime) {
    for (const int root : {0, 5, kRanks - 1}) {
      std::vector<float> values(kCount, static_cast<float>(rank + 1));
      Submission submission;
      submission.name = "values";
      submission.signature.kind = OperationKind::kBroadcast;
      submission.signature.root = root;
      submission.signature.shape = {kCount};
      submission.input = submission.output = reinterpret_cast<std::byte*>(values.data());
      ASSERT_DONE(submit(runtime, std::move(submission)));
      EXPECT_THAT(values, testing::Each(static_cast<float>(root + 1)));
    }
  });
  EXPECT_THAT(algorithms(),
              testing::ElementsAre("broadcast_numa", "broadcast_numa", "broadcast_numa"));
}

TEST_F(NumaNodes, LargeAllgathersGoByThem) {
  run("2", [&](int rank, Runtime& runtime) {
    const auto count_of = [](int of) { return static_cast<std::size_t>(1000 + 3000 * (of % 5)); };
    Rows<float> rows{.input = std::vector<float>(count_of(rank), static_cast<float>(rank + 1))};
    ASSERT_DONE(submit(runtime, rows_of(OperationKind::kAllgather, "rows", rows,
                                        {static_cast<std::int64_t>(count_of(rank))})));
    std::vector<float> expected;
    for (int of = 0; of < kRanks; ++of)
      expected.insert(expected.end(), count_of(of), static_cast<float>(of + 1));
    EXPECT_EQ(rows.output, expected);
  });
  EXPECT_THAT(algorithms(), testing::ElementsAre("allgather_numa"));
}

TEST_F(NumaNodes, LargeReduceScattersGoByThem) {
  run("2", [&](int rank, Runtime& runtime) {
    constexpr std::size_t kPart = 5'003;
    std::vector<float> input;
    for (int part = 0; part < kRanks; ++part)
      input.insert(input.end(), kPart, static_cast<float>(part + rank));
    Rows<float> rows{.input = std::move(input)};
    ASSERT_DONE(submit(runtime, rows_of(OperationKind::kReduceScatter, "rows", rows,
                                        {static_cast<std::int64_t>(kPart * kRanks)})));
    EXPECT_THAT(rows.output,
                testing::AllOf(
                    testing::SizeIs(kPart),
                    testing::Each(static_cast<float>(kRanks * rank + kRanks * (kRanks - 1) / 2))));
  });
  EXPECT_THAT(algorithms(), testing::ElementsAre("reduce_scatter_numa"));
}

}  // namespace
}  // namespace kolo::test::numa_nodes_test
