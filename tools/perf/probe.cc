#include "tools/perf/probe.h"

#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

namespace kolo::perf {

// Each direction has a line of its own, as flags of kolo's boards have.
struct Probe::Line {
  alignas(128) std::atomic<std::uint32_t> there;
  alignas(128) std::atomic<std::uint32_t> back;
};

namespace {

constexpr int kLoops = 5;
/// As part_: nobody passes lines.
constexpr int kNoPair = -2;
constexpr std::uint32_t kRounds = 100;

/// Whether every rank has a core: else spinning only disturbs. The same on every rank.
bool ranks_have_cores() {
  std::int64_t crowded = local_size() > sysconf(_SC_NPROCESSORS_ONLN) ? 1 : 0;
  allreduce_ordered(&crowded, &crowded, 1, DataType::kInt64, ReduceOp::kMax);
  return crowded == 0;
}

/// Whether more threads want to run on this host than it has ranks.
bool others_run() {
  std::ifstream file("/proc/loadavg");
  double load = 0;
  int runnable = 0;
  file >> load >> load >> load >> runnable;
  return file && runnable > local_size();
}

/// Spins until the flag has the value.
void await(const std::atomic<std::uint32_t>& flag, std::uint32_t value) {
  for (int spins = 1; flag.load(std::memory_order_acquire) != value; ++spins) {
    // The peer may have been put on this very core for the moment.
    if (spins % 10000 == 0) sched_yield();
  }
}

}  // namespace

std::unique_ptr<Probe> Probe::open(double far_ns) {
  std::int64_t number = rank() == 0 ? ::getpid() : 0;
  allreduce_ordered(&number, &number, 1, DataType::kInt64, ReduceOp::kSum);
  const std::string name = fmt::format("/kolo-perf-{}", number);
  const bool usable = ranks_have_cores() && far_ns > 0;
  const int part = usable && cross_rank() == 0 && local_rank() < 2 ? local_rank() : -1;
  Line* line = nullptr;
  if (part >= 0) {
    const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file >= 0 && ::ftruncate(file, sizeof(Line)) == 0) {
      void* const memory =
          ::mmap(nullptr, sizeof(Line), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (memory != MAP_FAILED) line = static_cast<Line*>(memory);
    }
    if (file >= 0) ::close(file);
  }
  // All or nobody: a rank without the memory would leave its partner waiting.
  std::int64_t mapped = line != nullptr ? 1 : 0;
  allreduce_ordered(&mapped, &mapped, 1, DataType::kInt64, ReduceOp::kSum);
  if (part == 0) ::shm_unlink(name.c_str());
  if (mapped != 2 && line != nullptr) {
    ::munmap(line, sizeof(Line));
    line = nullptr;
  }
  return std::unique_ptr<Probe>(new Probe(line, mapped == 2 ? part : kNoPair, far_ns));
}

Probe::~Probe() {
  if (line_ != nullptr) ::munmap(line_, sizeof(Line));
}

double Probe::ping_pong() {
  std::array<double, kLoops> loops = {};
  for (double& loop : loops) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      ++round_;
      if (part_ == 0) {
        line_->there.store(round_, std::memory_order_release);
        await(line_->back, round_);
      } else {
        await(line_->there, round_);
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
  // Rank 0 and the first of the pair tell all.
  double values[] = {0, rank() == 0 && others_run() ? 1.0 : 0.0};
  const double ns = line_ != nullptr ? ping_pong() : 0;
  if (part_ == 0) values[0] = ns;
  allreduce_ordered(values, values, 2, DataType::kFloat64, ReduceOp::kSum);
  const State state = values[0] > far_ns_ ? State::kFar : State::kNear;
  return {part_ == kNoPair ? State::kUnknown : state, values[0], values[1] != 0};
}

}  // namespace kolo::perf
