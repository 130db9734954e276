// Random programs of calls on process groups of c10d, one after the other, each the same on every
// rank, whose results are compared with their definitions. Run by kolo-run; see --help.
#include "tests/bindings/c10d/stress/caller.h"
#include "tests/support/hang_watch.h"
#include "tests/support/random_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>

namespace kolo::test {
namespace {

struct Options : RandomPrograms {
  int calls = 25;
};

using Ranks = std::vector<int>;

/// Some of the ranks, but not all, unless there is only one.
Ranks draw_ranks(Dice& dice, int size) {
  Ranks ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  dice.shuffle(ranks);
  if (size > 1) ranks.resize(static_cast<std::size_t>(1 + dice.below(size - 1)));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// One to three groups: the world mostly, and others of some of its ranks.
std::vector<Ranks> draw_groups(Dice& dice, int size) {
  Ranks world(static_cast<std::size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  std::vector<Ranks> groups;
  if (size == 1 || !dice.one_in(5)) groups.push_back(world);
  for (auto more = dice.below(3); more > 0 || groups.empty(); --more) {
    const Ranks ranks = draw_ranks(dice, size);
    if (std::find(groups.begin(), groups.end(), ranks) == groups.end()) groups.push_back(ranks);
  }
  return groups;
}

class Stress {
 public:
  explicit Stress(const Options& options)
      : options_(options), watch_(std::chrono::seconds(options.limit)) {}

  void run(std::uint64_t seed) {
    watch_.begin(seed);
    watch_.note("adding process sets");
    Dice dice(seed);
    const std::vector<Ranks> groups = draw_groups(dice, size());
    if (options_.verbose && rank() == 0)
      std::printf("--seed %llu: groups %s\n", static_cast<unsigned long long>(seed),
                  fmt::format("{}", fmt::join(groups, ", ")).c_str());
    std::vector<ProcessSet> sets;
    for (const Ranks& ranks : groups)
      sets.push_back(std::ssize(ranks) == size() ? ProcessSet() : add_process_set(ranks));
    watch_.note("groups at work");
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::uint64_t of_group = dice.salt();
      const auto calls = 1 + dice.below(options_.calls);
      if (sets[i].contains(rank()))
        threads.emplace_back([=, this, set = sets[i]] {
          run_group(seed, set, of_group, static_cast<int>(calls), static_cast<int>(i));
        });
    }
    if (size() > 1 && dice.one_in(2))
      threads.emplace_back([=, this, of_sets = dice.salt()] {
        try {
          come_and_go(seed, groups, of_sets);
        } catch (const std::exception& error) {
          end_with(seed, fmt::format("sets that come and go: {}", error.what()));
        }
      });
    for (std::thread& thread : threads) thread.join();
    watch_.note("removing process sets");
    for (const ProcessSet& set : sets)
      if (set != ProcessSet()) remove_process_set(set);
  }

 private:
  void run_group(std::uint64_t seed, const ProcessSet& set, std::uint64_t of_group, int calls,
                 int number) {
    try {
      Caller caller(set, of_group, of_group + static_cast<std::uint64_t>(rank()) + 1);
      caller.run(calls, [&](const std::string& what) {
        watch_.note(fmt::format("group {}, {}", number, what), number + 1);
        if (options_.verbose)
          std::fprintf(stderr, "rank %d, group %d: %s\n", rank(), number, what.c_str());
      });
    } catch (const std::exception& error) {
      end_with(seed, fmt::format("group {}: {}", number, error.what()));
    }
  }

  /// Creates further groups, whose sets are added and removed while the other groups work.
  void come_and_go(std::uint64_t seed, const std::vector<Ranks>& others, std::uint64_t of_sets) {
    Dice dice(of_sets);
    for (auto left = 1 + dice.below(3); left > 0; --left) {
      const Ranks ranks = draw_ranks(dice, size());
      const std::uint64_t of_group = dice.salt();
      const auto calls = dice.below(6);
      if (std::find(others.begin(), others.end(), ranks) != others.end()) continue;
      watch_.note("adding a set that goes", kComesAndGoes + 1);
      const ProcessSet set = add_process_set(ranks);
      c10::intrusive_ptr<ProcessGroupKolo> group;
      if (set.contains(rank())) {
        group = c10::make_intrusive<ProcessGroupKolo>(set);
        run_group(seed, set, of_group, static_cast<int>(calls), kComesAndGoes);
      }
      watch_.note("removing a set that goes", kComesAndGoes + 1);
      remove_process_set(set);
      if (group != nullptr) check_refuses(seed, *group);
    }
  }

  void check_refuses(std::uint64_t seed, ProcessGroupKolo& group) {
    try {
      group.barrier()->wait();
    } catch (const Exception& error) {
      if (error.code() == ErrorCode::kInvalidArgument) return;
    }
    end_with(seed, "a barrier of a group whose set is gone was not refused as it should");
  }

  void end_with(std::uint64_t seed, const std::string& what) {
    std::fprintf(stderr, "rank %d, --seed %llu, %s (%s)\n", rank(),
                 static_cast<unsigned long long>(seed), what.c_str(), watch_.what().c_str());
    // Give the others time to print what they find.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(1);
  }

  static constexpr int kComesAndGoes = 9;
  const Options options_;
  HangWatch watch_;
};

int run_programs(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Random programs of c10d's calls on kolo's process groups. The same arguments on every "
      "rank.\n\nexamples:\n  kolo-run -np 3 c10d_stress --programs 50\n"
      "  kolo-run -np 3 c10d_stress --seed 117 --verbose   # one of them again");
  options.add_to(app, "program", "Print each call before it is made");
  app.add_option("--calls", options.calls, "Of each group at most")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  init(argc, argv);
  const auto began = std::chrono::steady_clock::now();
  {
    Stress stress(options);
    for (int i = 0; i < options.programs; ++i)
      stress.run(options.seed + static_cast<std::uint64_t>(i));
  }
  barrier();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (rank() == 0)
    std::printf("%d programs on %d ranks are right, %.1f s\n", options.programs, size(),
                took.count());
  return 0;
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) { return kolo::test::end_of(kolo::test::run_programs, argc, argv); }
