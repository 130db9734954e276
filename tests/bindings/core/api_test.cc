// The global interface in real processes: restarted after shutdown() and after a failed start, and
// forked after init().
// Runs alone and under mpirun, on all ranks at once.
#include "tests/support/in_child.h"
#include "tests/support/message_of.h"

#include <kolo/kolo.h>
#include <kolo/membership.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using kolo::test::in_child;
using kolo::test::message_of;
using testing::HasSubstr;

double sum_of_ones() {
  double one = 1;
  kolo::allreduce(&one, &one, {1}, kolo::DataType::kFloat64, {.name = "ones"});
  return one;
}

double ordered_sum_of_ones() {
  double one = 1;
  kolo::allreduce_ordered(&one, &one, 1, kolo::DataType::kFloat64, kolo::ReduceOp::kSum);
  return one;
}

TEST(Api, CallsBeforeInitNameThemselves) {
  EXPECT_FALSE(kolo::is_initialized());
  EXPECT_THAT(message_of([] { static_cast<void>(kolo::local_rank()); }),
              HasSubstr("kolo::local_rank() was called before kolo::init()"));
  kolo::shutdown();  // without effect
}

TEST(Api, StartsAgainAfterShutdown) {
  for (int round = 0; round < 3; ++round) {
    kolo::init();
    EXPECT_TRUE(kolo::is_initialized());
    EXPECT_THAT(message_of([] { kolo::init(); }), HasSubstr("called twice"));
    EXPECT_EQ(sum_of_ones(), kolo::size());
    EXPECT_EQ(ordered_sum_of_ones(), kolo::size());
    kolo::barrier();  // no rank leaves while another one works
    kolo::shutdown();
    EXPECT_FALSE(kolo::is_initialized());
    EXPECT_THAT(message_of([] { static_cast<void>(sum_of_ones()); }),
                HasSubstr("after kolo::shutdown()"));
    EXPECT_THAT(message_of([] { static_cast<void>(ordered_sum_of_ones()); }),
                HasSubstr("after kolo::shutdown()"));
  }
}

/// Forks; 7 if the child is told that it has no part in the job, and ends.
int told_in_child() {
  return in_child([] {
    const std::string message = message_of([] { static_cast<void>(sum_of_ones()); });
    const std::string ordered = message_of([] { static_cast<void>(ordered_sum_of_ones()); });
    const bool right =
        message.find("forked after kolo::init()") != std::string::npos &&
        ordered.find("forked after kolo::init()") != std::string::npos &&
        message_of([] { kolo::init(); }).find("kolo::init() was called in") != std::string::npos &&
        !kolo::is_initialized();
    kolo::shutdown();
    return right ? 7 : 1;
  });
}

TEST(Api, AForkedChildIsToldAndHarmsNobody) {
  kolo::init();
  EXPECT_EQ(sum_of_ones(), kolo::size());
  EXPECT_EQ(told_in_child(), 7);
  EXPECT_EQ(sum_of_ones(), kolo::size()) << "the parent goes on, and so do its peers";
  kolo::barrier();
  kolo::shutdown();
}

TEST(Api, AChildForkedAfterTheEndLeavesTheWaysInAlone) {
  kolo::init();
  EXPECT_EQ(sum_of_ones(), kolo::size());
  kolo::barrier();
  kolo::shutdown();
  EXPECT_EQ(told_in_child(), 7);
  kolo::init();
  EXPECT_EQ(sum_of_ones(), kolo::size()) << "all ranks meet once more";
  kolo::barrier();
  kolo::shutdown();
}

/// Keeps the thread that is in init() there until it is released.
class HoldingStore final : public kolo::KeyValueStore {
 public:
  void set(const std::string&, const std::string&) override {}
  std::string get(const std::string&, std::chrono::milliseconds) override {
    entered_.set_value();
    let_go_.get_future().wait();
    throw std::runtime_error("let go");
  }
  void wait_for_init() { entered_.get_future().wait(); }
  void let_go() { let_go_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> let_go_;
};

TEST(Api, AChildForkedDuringInitDoesNotHang) {
  const auto store = std::make_shared<HoldingStore>();
  std::thread starts([&] {
    const std::string message =
        message_of([&] { kolo::init({.rank = 0, .size = 2, .store = store}); });
    EXPECT_THAT(message, HasSubstr("let go"));
  });
  store->wait_for_init();
  EXPECT_EQ(told_in_child(), 7);
  store->let_go();
  starts.join();
  EXPECT_EQ(told_in_child(), 7) << "after an init that failed";
}

// Some launchers need to be told of the end; then the exit status says whether they were.
TEST(Api, AGoodStartMakesUpForOneThatFailed) {
  EXPECT_THAT(message_of([] { kolo::init({.process_sets = {{1000}}}); }), HasSubstr("1000"));
  kolo::init();
  EXPECT_EQ(sum_of_ones(), kolo::size());
  kolo::barrier();
  kolo::shutdown();
}

TEST(Api, AnElasticJobHasNoProcessSetsFromTheStart) {
  setenv("KOLO_PROCESS", "0", 1);
  EXPECT_THAT(message_of([] {
                kolo::init({.init_method = "elastic://127.0.0.1:1", .process_sets = {{0}}});
              }),
              HasSubstr("kolo::split_world() makes sets in each world"));
  unsetenv("KOLO_PROCESS");
}

TEST(Api, SplitsTheWorldByColor) {
  kolo::init();
  const int rank = kolo::rank();
  const int size = kolo::size();
  const kolo::ProcessSet mine =
      kolo::split_world([](const kolo::RankPlace& place) { return place.rank % 2; });
  EXPECT_EQ(mine.size(), rank % 2 == 0 ? (size + 1) / 2 : size / 2);
  EXPECT_EQ(mine.rank(), rank / 2);
  EXPECT_EQ(mine.ranks().front(), rank % 2);
  double one = 1;
  kolo::allreduce_ordered(&one, &one, 1, kolo::DataType::kFloat64, kolo::ReduceOp::kSum, mine);
  EXPECT_EQ(one, mine.size());
  // The place of each rank, as all know it; and a set of all ranks beside the world.
  std::vector<int> locals;
  const kolo::ProcessSet all = kolo::split_world([&](const kolo::RankPlace& place) {
    locals.push_back(place.local_rank);
    return place.host;
  });
  EXPECT_EQ(all.size(), size);
  ASSERT_EQ(static_cast<int>(locals.size()), size);
  EXPECT_EQ(locals[static_cast<std::size_t>(rank)], kolo::local_rank());
  EXPECT_NE(all, mine);
  EXPECT_THAT(message_of([&] { kolo::remove_process_set(all); }),
              HasSubstr("stays until kolo::shutdown()"));
  kolo::shutdown();
  kolo::init();
  EXPECT_THAT(message_of([&] { kolo::barrier_ordered(mine); }),
              HasSubstr("there is no process set"));
  kolo::shutdown();
}

TEST(Api, JoinLetsShortRanksWaitForTheOthers) {
  kolo::init();
  const int rank = kolo::rank();
  const int size = kolo::size();
  kolo::Join join;
  for (int step = 0; step <= rank; ++step) {
    EXPECT_EQ(sum_of_ones(), size - step) << "those that have not ended";
    join.step();
  }
  const int last = join.finish();
  EXPECT_EQ(last, size - 1);
  EXPECT_EQ(sum_of_ones(), size) << "all are back";
  kolo::shutdown();
}

TEST(Api, JoinNamesTheRanksThatEndedEarly) {
  kolo::init();
  const int size = kolo::size();
  kolo::Join join({.throw_on_early_termination = true});
  const int steps = kolo::rank() == 0 ? 2 : 3;
  for (int step = 0; step < steps; ++step) {
    sum_of_ones();
    join.step();
  }
  const std::string message = message_of([&] { join.finish(); });
  if (size == 1) {
    EXPECT_EQ(message, "(no error)");
  } else {
    EXPECT_THAT(message, HasSubstr("of 3 steps, these ranks ended early: rank 0 after 2"));
  }
  EXPECT_EQ(sum_of_ones(), size);
  kolo::shutdown();
}

TEST(Api, AnyAndAllAreTheSameOnEveryRank) {
  kolo::init();
  const int size = kolo::size();
  for (int one = 0; one < size; ++one) {
    const bool is_me = kolo::rank() == one;
    EXPECT_TRUE(kolo::any(is_me)) << one;
    EXPECT_FALSE(kolo::all(!is_me)) << one;
    EXPECT_EQ(kolo::all(is_me), size == 1) << one;
  }
  EXPECT_FALSE(kolo::any(false));
  EXPECT_TRUE(kolo::all(true));
  kolo::Join join;  // a joined rank does not count
  if (kolo::rank() > 0) {
    EXPECT_TRUE(kolo::all(true));
    EXPECT_FALSE(kolo::any(false));
  }
  join.finish();
  kolo::shutdown();
}

TEST(Api, SharedMemoryOutlivesTheRuntime) {
  kolo::init();
  const auto memory = std::static_pointer_cast<float>(kolo::allocate(100 * sizeof(float)));
  EXPECT_EQ(memory.get()[99], 0);
  memory.get()[99] = 1;
  kolo::allreduce(memory.get(), memory.get(), {100}, kolo::DataType::kFloat32, {.name = "shared"});
  EXPECT_EQ(memory.get()[99], static_cast<float>(kolo::size()));
  kolo::shutdown();
  memory.get()[0] = 1;
}

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(Api, NoInOrderCallPaysForTheFirstUseOfSharedPages) {
  kolo::init();
  std::vector<float> values(1024);
  const auto sum = [&] {
    kolo::allreduce_ordered(values.data(), values.data(), 1024, kolo::DataType::kFloat32,
                            kolo::ReduceOp::kSum);
  };
  sum();  // the first use of the code
  const long before = page_faults();
  for (int call = 0; call < 200; ++call) sum();  // each in other pages than the one before
  EXPECT_LT(page_faults() - before, 50);
  kolo::shutdown();
}

// Runs alone, where calls of several threads need no order.
TEST(ApiThreads, CallsRunIntoTheEndAndIntoTheNextStart) {
  constexpr int kRounds = 20;
  std::atomic<bool> over = false;
  struct Counts {
    std::atomic<int> done = 0;
    std::atomic<int> refused = 0;
  };
  std::array<Counts, 3> counts;
  std::vector<std::thread> threads;
  for (Counts& mine : counts) {
    threads.emplace_back([&mine, &over] {
      while (!over) {
        try {
          EXPECT_EQ(ordered_sum_of_ones(), 1);
          ++mine.done;
        } catch (const kolo::Exception& exception) {
          EXPECT_EQ(exception.code(), kolo::ErrorCode::kShutdown) << exception.what();
          ++mine.refused;
        }
      }
    });
  }
  const auto wait_for_one_more = [&](std::atomic<int> Counts::*count) {
    for (Counts& of_thread : counts) {
      const int before = of_thread.*count;
      while (of_thread.*count == before) std::this_thread::yield();
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    kolo::init();
    wait_for_one_more(&Counts::done);
    kolo::shutdown();
    wait_for_one_more(&Counts::refused);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
}

// Runs in a process that has not called init() yet; the child has not either.
TEST(ApiExit, ADestructorOfAStaticObjectMayCall) {
  const auto body = [] {
    kolo::init();
    struct Late {
      ~Late() {
        double sum = ordered_sum_of_ones() + sum_of_ones();
        kolo::shutdown();
        kolo::init();
        sum += ordered_sum_of_ones() + sum_of_ones();
        _exit(sum == 4 ? 7 : 1);
      }
    };
    static const Late late;
    return ordered_sum_of_ones() == 1 ? 2 : 3;
  };
  EXPECT_EQ(in_child(body), 7) << "after those of what is local to the thread";
}

// Under kolo-run only: MPI cannot be finalised afterwards.
TEST(ApiAbort, NamesTheRankAndTheReasonEverywhere) {
  kolo::abort("before init, without effect");
  kolo::init();
  if (kolo::size() > 1) {
    if (kolo::rank() == 1) kolo::abort("the disk is full");
    const std::string message = message_of([] {
      while (true) sum_of_ones();
    });
    EXPECT_THAT(message, HasSubstr("rank 1 has given up: the disk is full"));
  }
  kolo::shutdown();
}

/// A folder of files, as simple as possible.
class FolderStore final : public kolo::KeyValueStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const auto path = path_of(key);
    const auto unfinished = path.string() + ".part";
    std::ofstream(unfinished, std::ios::binary) << value;
    std::filesystem::rename(unfinished, path);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path_of(key))) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("timeout");
      std::this_thread::yield();
    }
    std::ifstream file(path_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '.');
    return folder_ / key;
  }
  const std::filesystem::path folder_;
};

// Runs alone: its ranks are processes that are forked before init().
TEST(ApiRetry, RanksWhoseStartsFailedAtDifferentPointsMeet) {
  const std::filesystem::path folder =
      testing::TempDir() + "kolo_api_retry_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const auto rank = [&](int number) {
    alarm(50);
    const auto store = std::make_shared<FolderStore>(folder);
    const auto start = [&](int seconds) {
      return message_of([&] {
        kolo::init(
            {.rank = number, .size = 2, .store = store, .timeout = std::chrono::seconds(seconds)});
      });
    };
    if (number == 0) {
      EXPECT_THAT(start(0), HasSubstr("expected at least 1")) << "before it meets anybody";
      store->get("rank 1 has failed", std::chrono::seconds(30));
    } else {
      EXPECT_THAT(start(1), HasSubstr("did not reach")) << "as nobody is there";
      store->set("rank 1 has failed", "");
    }
    EXPECT_EQ(start(10), "(no error)");
    EXPECT_EQ(sum_of_ones(), 2);
    kolo::barrier();
    kolo::shutdown();
    return testing::Test::HasFailure() ? 1 : 0;
  };
  const pid_t other = fork();
  if (other == 0) std::exit(rank(1));
  EXPECT_EQ(rank(0), 0);
  int status = 0;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
