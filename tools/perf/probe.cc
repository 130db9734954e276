#include "tools/perf/probe.h"

#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

namespace kolo::perf {

// Each direction has its own cache line, as the flags of kolo's control segments do.
struct Probe::Line {
  alignas(128) std::atomic<std::uint32_t> there;
  alignas(128) std::atomic<std::uint32_t> back;
};

namespace {

constexpr int kLoops = 5;
/// A value of part_: no ranks pass a cache line.
constexpr int kNoPair = -2;
constexpr std::uint32_t kRounds = 100;

/// Whether more threads want to run on this host than it has ranks.
bool others_run() {
  std::ifstream file("/proc/loadavg");
  double load = 0;
  int runnable = 0;
  file >> load >> load >> load >> runnable;
  return file && runnable > local_size();
}

/// Gathered on every rank.
std::vector<Place> places_of_ranks() {
  const Place mine{local_rank(), local_size(), cross_rank()};
  std::vector<Place> places(static_cast<std::size_t>(size()));
  allgather_ordered(&mine, places.data(), sizeof(Place), DataType::kUInt8);
  return places;
}

}  // namespace

std::optional<std::array<int, 2>> pair_of(const std::vector<Place>& places) {
  std::array<int, 2> pair = {-1, -1};
  for (int rank = static_cast<int>(places.size()) - 1; rank >= 0; --rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    // Hosts are numbered by their lowest rank, so both are of the lowest host that has two ranks.
    if (place.local_rank == 0 && place.local_size > 1) pair[0] = rank;
    if (place.local_rank == 1 && place.cross_rank == 0) pair[1] = rank;
  }
  if (pair[0] < 0 || pair[1] < 0) return std::nullopt;
  return pair;
}

Probe::Probe(std::unique_ptr<SharedLines> memory, int part, double far_ns)
    : memory_(std::move(memory)),
      line_(memory_ != nullptr ? static_cast<Line*>(memory_->data()) : nullptr),
      part_(part),
      far_ns_(far_ns) {}

std::unique_ptr<Probe> Probe::open(double far_ns) {
  const bool usable = ranks_have_cores() && far_ns > 0;
  const auto pair = pair_of(places_of_ranks());
  std::unique_ptr<SharedLines> memory;
  int part = kNoPair;
  if (usable && pair) {
    part = rank() == pair->front() ? 0 : rank() == pair->back() ? 1 : -1;
    memory = SharedLines::open(pair->front(), part >= 0, sizeof(Line));
    if (memory == nullptr) part = kNoPair;
  }
  return std::unique_ptr<Probe>(new Probe(std::move(memory), part, far_ns));
}

// Spins until the flag has this round's number; false if the partner's process has ended.
bool Probe::await(const std::atomic<std::uint32_t>& flag) const {
  for (int spins = 1; flag.load(std::memory_order_acquire) != round_; ++spins) {
    if (spins % 10000 != 0) continue;
    // The peer may be on this very core at the moment.
    sched_yield();
    if (memory_->has_partner_ended()) return false;
  }
  return true;
}

double Probe::ping_pong() {
  std::array<double, kLoops> loops = {};
  for (double& loop : loops) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      ++round_;
      if (part_ == 0) {
        line_->there.store(round_, std::memory_order_release);
        if (!await(line_->back)) return 0;
      } else {
        if (!await(line_->there)) return 0;
        line_->back.store(round_, std::memory_order_release);
      }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    loop = took.count() / kRounds / 2;
  }
  std::sort(loops.begin(), loops.end());
  return loops[kLoops / 2];
}

Reading Probe::read() {
  align();
  // Rank 0 and the first rank of the pair tell all ranks.
  double values[] = {0, rank() == 0 && others_run() ? 1.0 : 0.0};
  const double ns = line_ != nullptr ? ping_pong() : 0;
  if (part_ == 0) values[0] = ns;
  allreduce_ordered(values, values, 2, DataType::kFloat64, ReduceOp::kSum);
  const State state = values[0] > far_ns_ ? State::kFar : State::kNear;
  return {part_ == kNoPair ? State::kUnknown : state, values[0], values[1] != 0};
}

}  // namespace kolo::perf
