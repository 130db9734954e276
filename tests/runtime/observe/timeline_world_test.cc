// The timelines of in-process ranks describe what the ranks did.
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/local_world.h"
#include "tests/support/trace_file.h"
#include "transport/loopback/loopback_hub.h"
#include "transport/loopback/loopback_transport.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <map>
#include <set>
#include <thread>

namespace kolo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kSize = 2;
constexpr std::size_t kTensors = 5;
const std::vector<std::string> kPhases = {"submit", "negotiate", "queue", "run"};

class TimelineWorld : public testing::Test {
 protected:
  LocalWorldOptions options(Environment::Variables more = {}) const {
    LocalWorldOptions options;
    options.variables = std::move(more);
    options.variables["KOLO_TIMELINE"] = folder_.path("trace.json");
    return options;
  }
  Events read(int rank) const {
    return read_trace(folder_.path(fmt::format("trace.{}.json", rank)));
  }

  static void train(Runtime& runtime, int steps) {
    std::vector<std::vector<float>> values(kTensors, std::vector<float>(1000, 1.0F));
    for (int step = 0; step < steps; ++step) {
      std::vector<std::shared_ptr<Work>> works;
      for (std::size_t i = 0; i < kTensors; ++i) {
        works.push_back(submit(runtime, allreduce_of(fmt::format("tensor {}", i), values[i])));
      }
      for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
    }
  }

  TemporaryFolder folder_;
};

TEST_F(TimelineWorld, EveryTensorGoesThroughItsPhasesInOrder) {
  constexpr int kSteps = 3;
  run_local_world(
      kSize, [](int, Runtime& runtime) { train(runtime, kSteps); }, options());
  for (int rank = 0; rank < kSize; ++rank) {
    const Events events = read(rank);
    const Events tensors = select(events, "cat", "tensor");
    ASSERT_EQ(tensors.size(), kTensors * kSteps);
    const Events all_phases = select(events, "cat", "phase");
    for (const auto& tensor : tensors) {
      EXPECT_EQ(tensor.at("pid"), rank);
      EXPECT_EQ(tensor.at("args").at("bytes"), 4000);
      std::int64_t at = begin_of(tensor);
      std::vector<std::string> names;
      for (const auto& phase : all_phases) {
        if (phase.at("tid") != tensor.at("tid") || begin_of(phase) < begin_of(tensor) ||
            end_of(phase) > end_of(tensor)) {
          continue;
        }
        EXPECT_EQ(begin_of(phase), at) << phase;  // without gaps
        at = end_of(phase);
        names.push_back(phase.at("name"));
      }
      EXPECT_EQ(at, end_of(tensor));
      EXPECT_EQ(names, kPhases);
    }
    EXPECT_EQ(metadata(events, "kolo_end").at("dropped"), 0);
  }
}

TEST_F(TimelineWorld, OperationsSayWhatTheyCarry) {
  run_local_world(
      kSize, [](int, Runtime& runtime) { train(runtime, 1); }, options());
  std::map<std::int64_t, nlohmann::json> names_by_sequence;
  for (int rank = 0; rank < kSize; ++rank) {
    const Events events = read(rank);
    std::size_t carried = 0;
    for (const auto& operation : select(events, "cat", "operation")) {
      const auto& arguments = operation.at("args");
      EXPECT_THAT(operation.at("name").get<std::string>(), HasSubstr("allreduce"));
      EXPECT_EQ(arguments.at("names").size(), arguments.at("tensors"));
      EXPECT_EQ(arguments.at("bytes"), 4000 * arguments.at("tensors").get<int>());
      EXPECT_GT(arguments.at("reduce_us").get<double>(), 0.0);
      carried += arguments.at("names").size();
      // One operation on every rank.
      const auto [known, is_new] =
          names_by_sequence.try_emplace(arguments.at("sequence"), arguments.at("names"));
      EXPECT_EQ(is_new, rank == 0);
      EXPECT_EQ(known->second, arguments.at("names"));
    }
    EXPECT_EQ(carried, kTensors);
    const Events counters = select(events, "name", "bytes in flight");
    ASSERT_FALSE(counters.empty());
    EXPECT_GT(counters.front().at("args").at("bytes"), 0);
    EXPECT_EQ(counters.back().at("args").at("bytes"), 0);
    EXPECT_FALSE(select(events, "cat", "wait").empty());
    EXPECT_TRUE(select(events, "cat", "step").empty());  // not asked for
  }
}

// If all fused tensors of a rank are in the arena, no step copies them.
TEST_F(TimelineWorld, TensorsOfTheArenaAreNotPacked) {
  constexpr std::size_t kCount = 30'000;
  run_local_world(
      kSize,
      [](int rank, Runtime& runtime) {
        std::vector<float> own(kCount);
        std::vector<std::shared_ptr<float>> memory;
        std::vector<Submission> tensors;
        for (std::size_t i = 0; i < kTensors; ++i) {
          memory.push_back(
              std::reinterpret_pointer_cast<float>(*runtime.allocate(kCount * sizeof(float))));
          if (rank == 1 && i == 0) memory.back() = {own.data(), [](float*) {}};
          std::fill_n(memory.back().get(), kCount, static_cast<float>(rank + 1));
          Submission& tensor = tensors.emplace_back();
          tensor.name = fmt::format("tensor {}", i);
          tensor.signature.shape = {kCount};
          tensor.input = reinterpret_cast<const std::byte*>(memory.back().get());
          tensor.output = reinterpret_cast<std::byte*>(memory.back().get());
        }
        const auto works = runtime.submit_group(std::move(tensors), "group");
        ASSERT_TRUE(works.ok());
        for (const auto& work : *works) ASSERT_TRUE(work->wait().ok());
        for (const auto& values : memory) EXPECT_EQ(values.get()[kCount - 1], 3.0F);
      },
      options());
  for (int rank = 0; rank < kSize; ++rank) {
    const Events operations = select(read(rank), "cat", "operation");
    ASSERT_EQ(operations.size(), 1U);
    const auto& arguments = operations.front().at("args");
    EXPECT_EQ(arguments.at("tensors"), kTensors);
    EXPECT_EQ(arguments.at("pack_us").get<double>() > 0.0, rank == 1);
    EXPECT_EQ(arguments.at("unpack_us").get<double>() > 0.0, rank == 1);
  }
}

TEST_F(TimelineWorld, LanesHaveNoOverlaps) {
  const auto body = [](int, Runtime& runtime) {
    // Too many elements for control segments, which have no steps.
    std::vector<std::vector<float>> copies(8, std::vector<float>(40'000, 1.0F));
    std::vector<std::shared_ptr<Work>> works;
    for (auto& copy : copies) {
      auto work = runtime.submit_ordered(allreduce_of("", copy));
      ASSERT_TRUE(work.ok());
      works.push_back(*std::move(work));
    }
    for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
  };
  run_local_world(kSize, body, options({{"KOLO_TIMELINE_STEPS", "1"}}));
  for (int rank = 0; rank < kSize; ++rank) {
    const Events events = read(rank);
    EXPECT_EQ(select(events, "cat", "tensor").size(), 8U);
    EXPECT_FALSE(select(events, "cat", "step").empty());
    for (const char* category : {"tensor", "operation", "step", "wait"}) {
      std::map<int, std::set<std::pair<std::int64_t, std::int64_t>>> by_lane;
      for (const auto& slice : select(events, "cat", category)) {
        by_lane[slice.at("tid")].emplace(begin_of(slice), end_of(slice));
      }
      for (const auto& [track, slices] : by_lane) {
        std::int64_t end = 0;
        for (const auto& [begin, slice_end] : slices) {
          EXPECT_GE(begin, end) << category;
          end = slice_end;
        }
      }
      // Eight operations with one title were in flight at once.
      if (category == std::string_view("tensor")) {
        EXPECT_GT(by_lane.size(), 1U);
      }
    }
  }
}

TEST_F(TimelineWorld, RanksShareOneAxis) {
  run_local_world(
      kSize, [](int, Runtime& runtime) { train(runtime, 1); }, options());
  // An allreduce ends on no rank before it has begun on all.
  std::int64_t last_submitted = 0;
  std::int64_t first_end = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < kSize; ++rank) {
    const Events events = read(rank);
    EXPECT_EQ(metadata(events, "kolo").at("clock_error_us"), 0.0);
    for (const auto& tensor : select(events, "cat", "tensor")) {
      if (tensor.at("args").at("tensor") != "tensor 0") continue;
      last_submitted = std::max(last_submitted, begin_of(tensor));
      first_end = std::min(first_end, end_of(tensor));
    }
  }
  EXPECT_LT(last_submitted, first_end);
}

TEST_F(TimelineWorld, AnAbortIsInTheFileBeforeAnybodyEndsIt) {
  const auto body = [this](int rank, Runtime& runtime) {
    if (rank == 1) return;  // leaves at once
    std::vector<float> values(10, 1.0F);
    const auto work = submit(runtime, allreduce_of("lonely", values));
    ASSERT_FALSE(work->wait().ok());
    // Still running: the process might be killed now.
    const Events events = read(0);
    const Events notes = select(events, "cat", "note");
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_THAT(notes[0].at("name").get<std::string>(),
                AllOf(HasSubstr("failed"), HasSubstr("lonely"), HasSubstr("rank 1")));
    const Events tensors = select(events, "cat", "tensor");
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_TRUE(tensors[0].at("args").contains("error"));
  };
  run_local_world(kSize, body, options());
}

TEST_F(TimelineWorld, WithoutTheVariableNothingIsWritten) {
  LocalWorldOptions none = options();
  none.variables.erase("KOLO_TIMELINE");
  run_local_world(
      kSize, [](int, Runtime& runtime) { train(runtime, 1); }, none);
  EXPECT_EQ(folder_.files(), 0U);
}

TEST_F(TimelineWorld, BeginsAndEndsWhileRanksRun) {
  LocalWorldOptions none = options();
  none.variables.erase("KOLO_TIMELINE");
  const auto body = [this](int rank, Runtime& runtime) {
    const auto expect_refused = [&](const Status& status, const char* why) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message,
                  AllOf(HasSubstr(fmt::format("rank {}", rank)), HasSubstr(why)));
    };
    train(runtime, 1);
    expect_refused(runtime.stop_timeline(), "keeps no timeline");
    expect_refused(runtime.start_timeline("/no/such/folder/t.json"), "start_timeline='/no/such");
    expect_refused(runtime.start_timeline(""), "takes the path of a file");
    ASSERT_TRUE(runtime.start_timeline(folder_.path("first.json")).ok());
    expect_refused(runtime.start_timeline(folder_.path("second.json")), "keeps a timeline already");
    train(runtime, 2);
    ASSERT_TRUE(runtime.stop_timeline().ok());
    expect_refused(runtime.stop_timeline(), "keeps no timeline");
    const std::string first = folder_.path(fmt::format("first.{}.json", rank));
    const Events events = read_trace(first);
    EXPECT_EQ(select(events, "cat", "tensor").size(), 2 * kTensors);
    EXPECT_EQ(metadata(events, "kolo_end").at("dropped"), 0);
    train(runtime, 1);
    EXPECT_EQ(read_trace(first).size(), events.size());
    ASSERT_TRUE(runtime.start_timeline(folder_.path("last.json")).ok());
    train(runtime, 1);
  };
  run_local_world(kSize, body, none);
  EXPECT_EQ(folder_.files(), 2U * kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    const Events events = read_trace(folder_.path(fmt::format("last.{}.json", rank)));
    EXPECT_EQ(select(events, "cat", "tensor").size(), kTensors);
    metadata(events, "kolo_end");
  }
}

TEST_F(TimelineWorld, ThatBeginsOrEndsAmidACallHasItNot) {
  LocalWorldOptions none = options();
  none.variables.erase("KOLO_TIMELINE");
  std::latch begun(1);
  std::latch ended(1);
  const auto body = [&](int rank, Runtime& runtime) {
    std::vector<float> values(100'000, 1.0F);
    std::vector<float> others(100'000, 1.0F);
    if (rank == 1) {
      begun.wait();
      ASSERT_TRUE(submit(runtime, allreduce_of("early", values))->wait().ok());
      ended.wait();
      ASSERT_TRUE(submit(runtime, allreduce_of("late", values))->wait().ok());
      return;
    }
    const auto early = submit(runtime, allreduce_of("early", values));
    ASSERT_TRUE(runtime.start_timeline(folder_.path("part.json")).ok());
    begun.count_down();
    ASSERT_TRUE(early->wait().ok());
    const auto late = submit(runtime, allreduce_of("late", others));
    ASSERT_TRUE(runtime.stop_timeline().ok());
    ended.count_down();
    ASSERT_TRUE(late->wait().ok());
  };
  run_local_world(kSize, body, none);
  const Events events = read_trace(folder_.path("part.0.json"));
  EXPECT_TRUE(select(events, "cat", "tensor").empty());
  for (const auto& counter : select(events, "name", "bytes in flight"))
    EXPECT_LE(counter.at("args").at("bytes"), 400'000);
  metadata(events, "kolo_end");
}

TEST_F(TimelineWorld, BeginsAndEndsWhileOtherThreadsCall) {
  constexpr int kTimes = 8;
  LocalWorldOptions none = options({{"KOLO_TIMELINE_STEPS", "1"}});
  none.variables.erase("KOLO_TIMELINE");
  const auto body = [this](int rank, Runtime& runtime) {
    std::thread recording([&] {
      for (int i = 0; i < kTimes; ++i) {
        ASSERT_TRUE(runtime.start_timeline(folder_.path(fmt::format("part{}.json", i))).ok());
        ASSERT_TRUE(runtime.stop_timeline().ok());
        metadata(read_trace(folder_.path(fmt::format("part{}.{}.json", i, rank))), "kolo_end");
      }
    });
    train(runtime, 20);
    recording.join();
  };
  run_local_world(kSize, body, none);
  EXPECT_EQ(folder_.files(), static_cast<std::size_t>(kTimes * kSize));
}

TEST_F(TimelineWorld, APathThatCannotBeOpenedOnOneRankFailsInitOnAll) {
  MemoryStore store;
  LoopbackHub hub(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      Config config;
      config.timeline = rank == 1 ? "/no/such/folder/t.json" : folder_.path("t.json");
      StoreBootstrap bootstrap(store, rank, kSize);
      auto runtime = Runtime::start(bootstrap, {std::move(config), Log("off"),
                                                std::make_unique<LoopbackTransport>(hub, rank)});
      ASSERT_FALSE(runtime.ok());
      EXPECT_EQ(runtime.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(runtime.error().message,
                  AllOf(HasSubstr("rank 1"), HasSubstr("/no/such/folder/t.1.json")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kolo::test
