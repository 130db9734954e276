// Runtime::choose_exchange(): measures at start which way all-reduces inside a host are fastest.
// Cores differ in how fast they exchange lines, and virtual ones change it while they run, so no
// constant fits all. The thread that starts the runtime. Runtime::force_algorithm() undoes that.
#include "runtime/base/check.h"
#include "runtime/base/plain_bytes.h"
#include "runtime/cycle/runtime.h"
#include "runtime/planning/exchange_fit.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::size_t kLeast = 4 << 10;  ///< smaller ones go in one hop everywhere
constexpr std::size_t kMostShared = 1 << 20;
constexpr int kTurns = 3;      ///< turns of each way at each size; the fastest one counts
constexpr int kUncounted = 3;  ///< calls at the beginning of a turn
constexpr int kCalls = 5;      ///< calls of a turn that count
/// Ranks begin calls of some KiB at the clock's next multiple of this, or one would time how far
/// they are apart. Few calls are longer.
constexpr std::chrono::microseconds kTick{16};
constexpr std::size_t kMostByTick = 64 << 10;
constexpr Microseconds kBudget{40'000};

void wait_for_tick() {
  const auto now = Clock::now().time_since_epoch();
  const auto tick = now - now % kTick + kTick;
  while (Clock::now().time_since_epoch() < tick) {
  }
}

struct Way {
  ExchangeUse use;
  double ExchangeTimes::*time;
};
constexpr Way kWays[] = {{ExchangeUse::kOneShot, &ExchangeTimes::one_shot_us},
                         {ExchangeUse::kTwoShot, &ExchangeTimes::two_shot_us},
                         {ExchangeUse::kTwoRankOnly, &ExchangeTimes::schedule_us}};

/// Rank 0's times for as many ranks; none if it has none.
Result<std::vector<ExchangeTimes>> share_times(Bootstrap& bootstrap,
                                               const MeasuredExchange& measured,
                                               Deadline deadline) {
  std::string mine;
  const auto known = measured.find(bootstrap.size());
  if (bootstrap.rank() == 0 && known != measured.end())
    for (const ExchangeTimes& row : known->second) mine += bytes_of(row);
  KOLO_ASSIGN(const auto all, bootstrap.exchange("known ways", mine, deadline));
  std::vector<ExchangeTimes> times(all.front().size() / sizeof(ExchangeTimes));
  if (!times.empty()) std::memcpy(times.data(), all.front().data(), all.front().size());
  return times;
}

}  // namespace

/// A process set of all ranks in the world's partition, for the time of the trial.
class Runtime::Trial {
 public:
  Trial(Runtime& runtime, Group& group) : runtime_(runtime), group_(group) {}

  /// Appends a row for each size, while there is time.
  Status time(std::byte* memory, bool in_arena, std::size_t most) {
    for (std::size_t bytes = kLeast; bytes <= most && !is_late_; bytes *= 2) {
      ExchangeTimes row{.bytes = bytes, .in_arena = in_arena};
      for (int turn = 0; turn < kTurns && !is_late_; ++turn) {
        KOLO_TRY(take_turns(memory, row));
        double elapsed = Microseconds(Clock::now() - begun_).count();
        KOLO_TRY(take_largest({&elapsed, 1}));
        is_late_ = elapsed > kBudget.count();
      }
      rows_.push_back(row);
    }
    return {};
  }
  /// The time was up before all was measured; equal on all ranks.
  bool is_late() const { return is_late_; }

  /// Replaces each number by the largest of all ranks.
  Status take_largest(std::span<double> numbers) {
    return call(numbers.data(), numbers.size(), DataType::kFloat64, ReduceOp::kMax);
  }

  /// The slowest rank's times.
  Result<std::vector<ExchangeTimes>> times() {
    std::vector<double> numbers;
    for (const ExchangeTimes& row : rows_)
      for (const Way& way : kWays) numbers.push_back(row.*way.time);
    KOLO_TRY(take_largest(numbers));
    auto number = numbers.begin();
    for (ExchangeTimes& row : rows_)
      for (const Way& way : kWays) row.*way.time = *number++;
    return rows_;
  }

 private:
  Status call(void* memory, std::size_t count, DataType type, ReduceOp op) {
    auto* const bytes = static_cast<std::byte*>(memory);
    return runtime_.call_ordered({.input = bytes,
                                  .output = bytes,
                                  .count = static_cast<std::int64_t>(count),
                                  .type = type,
                                  .op = op,
                                  .process_set = Exchange::kTrialSet});
  }

  Status take_turns(std::byte* memory, ExchangeTimes& row) {
    for (const Way& way : kWays) {
      if (way.use == ExchangeUse::kOneShot && row.bytes > thresholds::kExchange) continue;
      const ExchangeLimits& now = group_.exchange().limits();
      const ExchangeLimits limits = exchange_limits(now.ranks, now.has_cores, way.use);
      runtime_.driver_->with_token([&] { group_.set_limits(limits); });
      std::array<Clock::duration, kCalls> took = {};
      for (int i = -kUncounted; i < kCalls; ++i) {
        std::memset(memory, 0, row.bytes);  // as a program that computes the next input
        if (row.bytes <= kMostByTick) wait_for_tick();
        const auto before = Clock::now();
        KOLO_TRY(call(memory, row.bytes / sizeof(float), DataType::kFloat32, ReduceOp::kSum));
        if (i >= 0) took[static_cast<std::size_t>(i)] = Clock::now() - before;
      }
      std::nth_element(took.begin(), took.begin() + kCalls / 2, took.end());
      row.*way.time = std::min(row.*way.time, Microseconds(took[kCalls / 2]).count());
    }
    return {};
  }

  Runtime& runtime_;
  Group& group_;
  std::vector<ExchangeTimes> rows_;
  bool is_late_ = false;
  const Clock::time_point begun_ = Clock::now();
};

Status Runtime::choose_exchange(Bootstrap& bootstrap, MeasuredExchange& measured,
                                Deadline deadline) {
  const ExchangeLimits& limits = groups_.world().exchange().limits();
  // Where ranks wait for cores, what a call takes depends on who runs; and a constant is the same
  // in every run.
  if (!limits.has_cores || !limits.allreduces ||
      exchange_use(config_.algorithm) != ExchangeUse::kByCost || config_.deterministic != 0)
    return {};
  KOLO_ASSIGN(exchange_times_, share_times(bootstrap, measured, deadline));
  if (!exchange_times_.empty()) {
    driver_->with_token([&] { groups_.world().set_limits(fitted(limits, exchange_times_)); });
    return {};
  }
  Group* group = nullptr;
  driver_->with_token([&] { group = &groups_.add_trial(); });
  Trial trial(*this, *group);
  const auto memory = std::make_unique<std::byte[]>(thresholds::kExchange);
  KOLO_TRY(trial.time(memory.get(), /*in_arena=*/false, thresholds::kExchange));
  KOLO_ASSIGN(const auto shared, allocate_if_shared(kMostShared));
  double lacks = shared == nullptr ? 1 : 0;
  KOLO_TRY(trial.take_largest({&lacks, 1}));
  if (lacks == 0) KOLO_TRY(trial.time(shared.get(), /*in_arena=*/true, kMostShared));

  // Where time was up, other programs were on the cores, or ranks are many: the constants stay.
  if (!trial.is_late()) {
    KOLO_ASSIGN(exchange_times_, trial.times());
    measured[world().size()] = exchange_times_;
  }

  // All ranks leave the trial's calls before one clears what it published, and all clear it before
  // the world's first call.
  KOLO_TRY(bootstrap.exchange("all-reduces inside hosts", "", deadline));
  driver_->with_token([&] {
    group->exchange().clear();
    static_cast<void>(groups_.remove(Exchange::kTrialSet));
    groups_.world().set_limits(fitted(limits, exchange_times_));
  });
  KOLO_TRY(bootstrap.exchange("their ways", "", deadline));
  return {};
}

void Runtime::force_algorithm(const std::string& algorithm) {
  driver_->with_token([&] {
    Group& world = groups_.world();
    if (!chosen_) chosen_ = {world.exchange().limits(), config_.algorithm};
    const ExchangeLimits& limits = chosen_->limits;
    const ExchangeUse use = exchange_use(algorithm);
    if (algorithm.empty()) {
      world.set_limits(limits);
    } else if (limits.ranks == 0) {
      const auto size = static_cast<std::size_t>(world.communicator().size());
      world.set_limits(limits_without_segments(size, use));
    } else {
      world.set_limits(exchange_limits(limits.ranks, limits.has_cores, use));
    }
    config_.algorithm = algorithm.empty() ? chosen_->algorithm : algorithm;
    cycle_.forget_policy();
  });
}

}  // namespace kolo
