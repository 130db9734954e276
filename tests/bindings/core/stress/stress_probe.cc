// Started by stress_test: a random program of all kinds of calls, the same on every rank; all
// results are verified. One rank may fail in the middle.
#include "tests/bindings/core/stress/calls.h"
#include "tests/bindings/core/stress/values.h"
#include "tests/support/random_programs.h"
#include "tests/support/scribbling_child.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

namespace kolo::test {
namespace {

struct Options {
  ProgramOptions program;
  std::string fault;  ///< fault of rank `victim`, in round `fault_round`
  int victim = 0;
  int fault_round = 0;
  int fault_step = 0;
  bool verbose = false;
};

class Rank {
 public:
  Rank(const Options& options, perf::Gpu* gpu) : options_(options), rank_(rank()), gpu_(gpu) {}

  /// Returns 0; 3 if an operation failed; 4 if kolo did something wrong.
  int run();

 private:
  void do_round(const Round& round, int number);
  void do_lane(const Lane& lane, std::uint64_t seed, bool may_fail);
  void do_joins(const Round& round, std::uint64_t seed);
  void fail_if_due(int step);
  void note(const std::string& what, int code);
  /// Waits for the operations that were left in flight until this round.
  void end_left(bool all);

  const Options options_;
  const int rank_;
  perf::Gpu* const gpu_;
  std::map<int, ProcessSet> sets_;
  int round_ = 0;
  std::mutex mutex_;
  std::vector<std::string> notes_;
  int code_ = 0;
  struct Left {
    Begun begun;
    int until;  ///< the round in which it is waited for
  };
  std::vector<Left> left_;
};

void Rank::note(const std::string& what, int code) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(what);
  code_ = std::max(code_, code);
}

void Rank::fail_if_due(int step) {
  if (options_.fault.empty() || rank_ != options_.victim || round_ != options_.fault_round ||
      step != options_.fault_step)
    return;
  std::printf("fault\n");
  std::fflush(stdout);
  if (options_.fault == "kill") std::raise(SIGKILL);
  if (options_.fault == "stop") std::raise(SIGSTOP);
  if (options_.fault == "segv") std::raise(SIGSEGV);
  if (options_.fault == "exit") std::exit(0);
  if (options_.fault == "quick_exit") ::_exit(0);
  if (options_.fault == "throw") std::thread([] { throw std::runtime_error("enough"); }).join();
  if (options_.fault == "abort") abort("the disk is full");
  if (options_.fault == "shutdown") shutdown();
  if (options_.fault == "refuse")
    Caller(rank_, sets_, options_.program.seed, gpu_).refused_ordered();
  if (options_.fault == "extra") {
    std::uint8_t values[7] = {};
    broadcast_ordered(values, 7, DataType::kUInt8, rank_);
  }
}

/// The thread in which a rank may fail: that of the world's in-order submission if there is one, so
/// that no other thread makes such calls at that time.
std::size_t failing_communicator(const Round& round) {
  for (std::size_t i = 0; i < round.lanes.size(); ++i) {
    const Lane& lane = round.lanes[i];
    if (lane.ordered && lane.steps.front().set == kWorld) return i;
  }
  return 0;
}

void Rank::do_lane(const Lane& lane, std::uint64_t seed, bool may_fail) {
  Caller caller(rank_, sets_, seed, gpu_);
  std::vector<Step> steps;
  for (const Step& step : lane.steps)
    if (caller.takes_part(step)) steps.push_back(step);
  if (lane.shuffled) caller.dice().shuffle(steps);
  std::vector<Begun> begun;
  const auto guard = [&](auto&& body) {
    try {
      body();
      return true;
    } catch (const Wrong& wrong) {
      note(fmt::format("round {}: WRONG {}", round_, wrong.what()), 4);
    } catch (const Exception& error) {
      note(fmt::format("round {}: {}: {}", round_, to_string(error.code()), error.what()), 3);
    }
    return false;
  };
  int number = 0;
  for (const Step& step : steps) {
    const bool goes_on = guard([&] {
      if (may_fail) fail_if_due(number++);
      const bool blocking = !lane.shuffled && caller.dice().one_in(2);
      begun.push_back(lane.ordered ? caller.begin_ordered(step, blocking)
                                   : caller.begin(step, blocking));
    });
    if (!goes_on) break;
  }
  if (may_fail)
    guard([&] { fail_if_due(options_.fault_step < number ? -1 : options_.fault_step); });
  if (lane.shuffled) caller.dice().shuffle(begun);
  ScribblingChild child(caller.dice().one_in(8) ? shared_blocks() : ScribblingChild::Memory());
  for (Begun& one : begun) {
    if (one.step.rounds_more == 0) {
      guard([&] { caller.end(one); });
      continue;
    }
    const std::lock_guard lock(mutex_);
    left_.push_back({one, round_ + one.step.rounds_more});
  }
  guard([&] { child.end(); });
}

void Rank::end_left(bool all) {
  Caller caller(rank_, sets_, options_.program.seed, gpu_);
  for (Left& left : left_) {
    if (all || left.until <= round_) caller.end(left.begun);
  }
  std::erase_if(left_, [&](const Left& left) { return all || left.until <= round_; });
}

void Rank::do_joins(const Round& round, std::uint64_t seed) {
  const auto place = std::find(round.ranks.begin(), round.ranks.end(), rank_);
  if (place == round.ranks.end()) return;
  Caller caller(rank_, sets_, seed, gpu_);
  const int mine = round.joins_after[static_cast<std::size_t>(place - round.ranks.begin())];
  std::vector<Begun> begun;
  const std::vector<Step>& steps = round.lanes.front().steps;
  for (int i = 0; i < mine; ++i) {
    std::vector<int> contributors;
    for (std::size_t p = 0; p < round.ranks.size(); ++p)
      if (round.joins_after[p] > i) contributors.push_back(round.ranks[p]);
    begun.push_back(caller.begin_joined(steps[static_cast<std::size_t>(i)], contributors));
    if (caller.dice().one_in(2)) synchronize(*begun.back().works.front());
  }
  const ProcessSet set = caller.set_of(steps.front());
  double last = join(set);
  for (Begun& one : begun) caller.end(one);
  const double mine_last = last;
  allreduce(&last, &last, {}, DataType::kFloat64,
            {.op = ReduceOp::kMax, .name = "last", .process_set = set});
  if (last != mine_last) throw Wrong("ranks disagree on who joined last");
}

void Rank::do_round(const Round& round, int number) {
  const std::uint64_t seed =
      options_.program.seed * 1000003 + static_cast<std::uint64_t>(number * 64 + rank_) * 7919;
  const int late = round.late_ms[static_cast<std::size_t>(rank_)];
  if (late > 0) std::this_thread::sleep_for(std::chrono::milliseconds(late));
  if (round.kind != Round::Kind::kCalls) fail_if_due(options_.fault_step);
  switch (round.kind) {
    case Round::Kind::kAddSet:
      sets_.emplace(round.set, add_process_set(round.ranks));
      if (sets_.at(round.set).ranks() != round.ranks) throw Wrong("ProcessSet::ranks()");
      break;
    case Round::Kind::kRemoveSet:
      remove_process_set(sets_.at(round.set));
      sets_.erase(round.set);
      break;
    case Round::Kind::kJoin:
      do_joins(round, seed);
      break;
    case Round::Kind::kCalls: {
      const std::size_t failing = failing_communicator(round);
      std::vector<std::thread> threads;
      for (std::size_t i = 1; i < round.lanes.size(); ++i)
        threads.emplace_back([&, i] { do_lane(round.lanes[i], seed + i, i == failing); });
      do_lane(round.lanes.front(), seed, failing == 0);
      for (std::thread& thread : threads) thread.join();
      break;
    }
  }
}

int Rank::run() {
  Program program(options_.program);
  const auto guarded = [&](auto&& body) {
    try {
      body();
    } catch (const Wrong& wrong) {
      note(fmt::format("round {}: WRONG {}", round_, wrong.what()), 4);
    } catch (const Exception& error) {
      note(fmt::format("round {}: {}: {}", round_, to_string(error.code()), error.what()), 3);
    }
  };
  for (; round_ < options_.program.rounds && code_ == 0; ++round_) {
    const Round round = program.next();
    if (options_.verbose) {
      std::printf("round %d, kind %d, %zu lanes\n", round_, static_cast<int>(round.kind),
                  round.lanes.size());
    }
    guarded([&] { do_round(round, round_); });
    guarded([&] { end_left(false); });
  }
  guarded([&] { end_left(true); });
  if (code_ == 4) abort("a result is wrong");
  // No rank leaves while another one works. After a failure, the failure reaches every rank.
  guarded([] { barrier_ordered(); });
  guarded([] { barrier({.name = "the end"}); });
  for (const std::string& what : notes_) std::printf("rank %d: %s\n", rank_, what.c_str());
  std::printf("rank %d: ended with %d after %d rounds\n", rank_, code_, round_);
  std::fflush(stdout);
  // The starter of this program signals when the other ranks have finished.
  if (code_ != 0 && !options_.fault.empty()) static_cast<void>(std::getchar());
  shutdown();
  return code_;
}

int run_program(int argc, char** argv) {
  Options options;
  CLI::App app("Random programs of kolo's calls, verified. The same arguments on every rank.");
  app.add_option("--seed", options.program.seed, "Of the program")->capture_default_str();
  app.add_option("--rounds", options.program.rounds, "Rounds of calls")->capture_default_str();
  app.add_option("--max-bytes", options.program.max_bytes, "Of most tensors")
      ->capture_default_str()
      ->check(CLI::Range(16, 1 << 28));
  app.add_flag("--gpu", options.program.gpu, "Most of it on this rank's CUDA device");
  app.add_option("--fault", options.fault, "What one rank does in the midst")
      ->check(CLI::IsMember({"kill", "stop", "segv", "exit", "quick_exit", "throw", "abort",
                             "shutdown", "refuse", "extra"}));
  app.add_option("--victim", options.victim, "The rank that does it");
  app.add_option("--fault-round", options.fault_round, "Round in which it does");
  app.add_option("--fault-step", options.fault_step, "Step of that round before which it does");
  app.add_flag("--verbose", options.verbose, "Print each round");
  CLI11_PARSE(app, argc, argv);
  init(argc, argv);
  options.program.size = size();
  if (!options.program.gpu) return Rank(options, nullptr).run();
  const auto gpu = perf::open_gpu();
  if (!gpu.ok()) throw std::runtime_error(gpu.error().message);
  return Rank(options, gpu->get()).run();
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) { return kolo::test::end_of(kolo::test::run_program, argc, argv); }
