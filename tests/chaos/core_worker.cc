// A job of sums without LibTorch, for sanitizers: tests/chaos/chaos starts it by kolo-run and
// disturbs it, as it does with worker.cc, and reads the same lines.
#include <kolo/membership.h>

#include <kolo/kolo.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kStepsOfEpoch = 10;
/// Elements: an exchange of small calls, and an operation with a schedule.
constexpr std::size_t kSmall = 3;
constexpr std::size_t kLarge = 300'000;

volatile std::sig_atomic_t asked = 0;
void ask(int signal) { asked = signal; }

void take_signal() {
  if (asked == SIGUSR1) std::exit(3);
  if (asked == SIGUSR2) throw std::runtime_error("an exception of this rank's own");
}

void say(const char* what, std::uint64_t step) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("%s %d: pid %d on %s is rank %d of %d at %llu, %.6f\n", what,
              kolo::membership().generation, getpid(), host.data(), kolo::rank(), kolo::size(),
              static_cast<unsigned long long>(step), std::chrono::duration<double>(now).count());
  std::fflush(stdout);
}

void need(bool holds, const char* what, std::uint64_t step, std::int64_t value) {
  if (holds) return;
  std::printf("WRONG: %s of step %llu is %lld\n", what, static_cast<unsigned long long>(step),
              static_cast<long long>(value));
  std::fflush(stdout);
  std::_Exit(99);
}

void check_sum(std::uint64_t step, std::size_t elements) {
  const auto factor = static_cast<std::int64_t>(step + 1);
  const std::int64_t n = kolo::size();
  std::vector<std::int64_t> sum(elements, (kolo::rank() + 1) * factor);
  kolo::allreduce(sum.data(), sum.data(), {static_cast<std::int64_t>(elements)},
                  kolo::DataType::kInt64, {.name = "sum" + std::to_string(elements)});
  for (const std::int64_t value : sum)
    need(value == n * (n + 1) / 2 * factor, "a sum", step, value);
}

int half(int rank, int size) { return rank * 2 / size; }

/// Process sets in each world: ranks of the same parity, of the same half.
struct Sets {
  kolo::ProcessSet parity;
  kolo::ProcessSet halves;
};

/// By name and in order, over `set`, which has the ranks for which `has` holds.
template <class Has>
void check_set(const kolo::ProcessSet& set, std::uint64_t step, const Has& has) {
  std::int64_t right = 0;
  for (int rank = 0; rank < kolo::size(); ++rank)
    if (has(rank)) right += rank + 1;
  std::int64_t mine = kolo::rank() + 1;
  std::int64_t sum = 0;
  kolo::allreduce_ordered(&mine, &sum, 1, kolo::DataType::kInt64, kolo::ReduceOp::kSum, set);
  need(sum == right, "a set's sum", step, sum);
  kolo::allreduce(&mine, &mine, {1}, kolo::DataType::kInt64, {.name = "set", .process_set = set});
  need(mine == right, "a set's sum by name", step, mine);
}

void check_sets(const Sets& sets, std::uint64_t step) {
  check_set(sets.parity, step, [](int rank) { return (rank - kolo::rank()) % 2 == 0; });
  check_set(sets.halves, step,
            [](int rank) { return half(rank, kolo::size()) == half(kolo::rank(), kolo::size()); });
}

/// Whether all ranks go on; false: newcomers wait.
bool commit() {
  std::int32_t newcomers = kolo::rank() == 0 ? kolo::newcomers() : 0;
  kolo::broadcast_ordered(&newcomers, 1, kolo::DataType::kInt32, 0);
  return newcomers == 0;
}

/// Returns when there is a file `end`; false: the next world waits.
bool train(std::uint64_t& step, const Sets& sets, const std::string& end,
           std::chrono::milliseconds pause) {
  // The furthest rank knows the step.
  kolo::allreduce(&step, &step, {1}, kolo::DataType::kInt64,
                  {.op = kolo::ReduceOp::kMax, .name = "step"});
  check_sum(step, kSmall);
  say("world", step);
  for (;;) {
    if (step % kStepsOfEpoch == 0) {
      if (kolo::any(std::filesystem::exists(end))) return true;
      say("at", step);
    }
    std::this_thread::sleep_for(pause);
    take_signal();
    check_sum(step, kSmall);
    check_sum(step, kLarge);
    check_sets(sets, step);
    ++step;
    if (commit()) continue;
    say("left", step);
    return false;
  }
}

void enter_next_world() {
  kolo::shutdown();
  kolo::enter_next_world();
}

void run(const std::string& end, std::chrono::milliseconds pause) {
  std::uint64_t step = 0;
  const Sets sets{
      .parity = kolo::split_world([](const auto& place) { return place.rank % 2; }),
      .halves = kolo::split_world([](const auto& place) { return half(place.rank, place.size); })};
  check_sets(sets, step);
  say("ready", step);
  static_cast<void>(kolo::newcomers());  // the launcher knows from now on that the job is elastic
  if (kolo::membership().generation == 0) enter_next_world();
  for (;;) {
    try {
      if (train(step, sets, end, pause)) break;
    } catch (const kolo::Exception&) {
      if (!kolo::loss()) throw;
      say("lost", step);
    }
    enter_next_world();
  }
  std::printf("done: pid %d is rank %d of %d at %llu, off by 0\n", getpid(), kolo::rank(),
              kolo::size(), static_cast<unsigned long long>(step));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::signal(SIGUSR1, ask);
    std::signal(SIGUSR2, ask);
    std::string end;
    int milliseconds = 20;
    for (int i = 1; i + 1 < argc; i += 2) {
      if (std::strcmp(argv[i], "--end") == 0) end = argv[i + 1];
      if (std::strcmp(argv[i], "--step-ms") == 0) milliseconds = std::atoi(argv[i + 1]);
    }
    kolo::init(argc, argv);
    run(end, std::chrono::milliseconds(milliseconds));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pid %d: %s\n", getpid(), error.what());
    return 1;
  }
}
