// Random trainings of kolo::torch, one after the other, each the same on every rank. Each step is
// compared with that of one process that has all ranks' data. Run by kolo-run; see --help.
#include "tests/bindings/torch/stress/failing_program.h"
#include "tests/bindings/torch/stress/training.h"
#include "tests/support/hang_watch.h"
#include "tests/support/random_programs.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

namespace kolo::test {
namespace {

struct Options : RandomPrograms {
  bool list = false;
  FaultOptions fault;
};

/// The set of each rank: one set, or two that are independent of each other.
std::vector<int> draw_sides(std::uint64_t seed, int size) {
  Dice dice(seed);
  std::vector<int> sides(static_cast<std::size_t>(size), 0);
  if (size == 1 || !dice.one_in(6)) return sides;
  for (int& side : sides) side = static_cast<int>(dice.below(2));
  sides.front() = 0;
  sides.back() = 1;
  return sides;
}

std::vector<int> ranks_of(const std::vector<int>& sides, int side) {
  std::vector<int> ranks;
  for (int rank = 0; rank < std::ssize(sides); ++rank)
    if (sides[static_cast<std::size_t>(rank)] == side) ranks.push_back(rank);
  return ranks;
}

bool is_split(const std::vector<int>& sides) { return ranks_of(sides, 0).size() != sides.size(); }

Plan plan_of(std::uint64_t seed, const std::vector<int>& sides, int side) {
  const auto ranks = ranks_of(sides, side);
  const bool in_set = ranks.size() != sides.size();
  return draw_plan(seed + static_cast<std::uint64_t>(side) * 1000003,
                   static_cast<int>(ranks.size()), in_set);
}

class Stress {
 public:
  explicit Stress(const Options& options)
      : options_(options), watch_(std::chrono::seconds(options.limit)) {}

  /// Whether the training's results are right.
  bool run(std::uint64_t seed) {
    const auto sides = draw_sides(seed, size());
    const int side = sides[static_cast<std::size_t>(rank())];
    const Plan plan = begin(seed, sides, side);
    try {
      train(plan, sides, side);
      return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d, --seed %llu: %s (%s)\n%s\n", rank(),
                   static_cast<unsigned long long>(seed), error.what(), watch_.what().c_str(),
                   plan.text().c_str());
      return false;
    }
  }

  /// For a training in which one rank fails: returns the exit status.
  int run_failing(std::uint64_t seed) {
    const auto sides = draw_sides(seed, size());
    const int side = sides[static_cast<std::size_t>(rank())];
    Plan plan = begin(seed, sides, side);
    // A rank that leaves out a batch too meets the victim, and a rank with another size says so
    // while the others say that the victim is ahead.
    if (options_.fault.fault == "left_out")
      for (StepPlan& step : plan.steps) step.leaves_out = step.size_apart = kNever;
    const auto sets = make_sets(sides);
    const auto folder = agree_on_folder();
    return test::run_failing(
        options_.fault, seed,
        [&](const Progress& progress) {
          return std::make_unique<Training>(plan, sets[static_cast<std::size_t>(side)],
                                            is_split(sides), folder, progress);
        },
        [this](const std::string& what) { watch_.note(what); });
  }

 private:
  Plan begin(std::uint64_t seed, const std::vector<int>& sides, int side) {
    watch_.begin(seed);
    watch_.note("agreeing on a folder");
    Plan plan = plan_of(seed, sides, side);
    if (options_.verbose && rank() == ranks_of(sides, side).front())
      std::printf("%s\n", plan.text().c_str());
    std::fflush(stdout);
    return plan;
  }

  static std::vector<ProcessSet> make_sets(const std::vector<int>& sides) {
    std::vector<ProcessSet> sets(2);
    if (is_split(sides))
      for (int s = 0; s < 2; ++s)
        sets[static_cast<std::size_t>(s)] = add_process_set(ranks_of(sides, s));
    return sets;
  }

  static std::filesystem::path agree_on_folder() {
    return broadcast_object(
        (std::filesystem::temp_directory_path() / fmt::format("kolo_training_{}", ::getpid()))
            .string(),
        0);
  }

  void train(const Plan& plan, const std::vector<int>& sides, int side) {
    const bool in_set = is_split(sides);
    const auto sets = make_sets(sides);
    const auto folder = agree_on_folder();
    std::string digest;
    {
      Training training(plan, sets[static_cast<std::size_t>(side)], in_set, folder,
                        [this](const std::string& what) { watch_.note(what); });
      training.run();
      digest = training.digest();
    }
    watch_.note("comparing the ranks");
    const auto digests = allgather_object(digest);
    // LibTorch uses other instructions for other strides.
    const bool same_bits = std::none_of(plan.steps.begin(), plan.steps.end(),
                                        [](const StepPlan& step) { return step.strides_by_rank; });
    for (const int other : ranks_of(sides, side))
      if (same_bits && digests[static_cast<std::size_t>(other)] != digest)
        throw Differs(fmt::format("rank {} has other bits", other));
    if (in_set)
      for (const ProcessSet& set : sets) remove_process_set(set);
    if (rank() == 0) std::filesystem::remove_all(folder);
  }

  const Options options_;
  HangWatch watch_;
};

int run_programs(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Random trainings of kolo::torch, compared with one process. The same arguments on every "
      "rank.\n\nexamples:\n  kolo-run -np 3 training_stress --programs 50\n"
      "  kolo-run -np 3 training_stress --seed 117 --verbose   # one of them again");
  options.add_to(app, "training", "Print what each is before it runs");
  app.add_flag("--list", options.list, "Print what they are, and do nothing");
  options.fault.add_to(app);
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  init(argc, argv);
  const auto began = std::chrono::steady_clock::now();
  Stress stress(options);
  if (!options.fault.fault.empty()) return stress.run_failing(options.seed);
  for (int i = 0; i < options.programs; ++i) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
    if (options.list) {
      const auto sides = draw_sides(seed, size());
      for (int side = 0; side < 2 && rank() == 0; ++side)
        if (!ranks_of(sides, side).empty())
          std::printf("%s\n", plan_of(seed, sides, side).text().c_str());
      continue;
    }
    if (!stress.run(seed)) {
      // Give the others time to print what they find.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return 1;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (rank() == 0 && !options.list)
    std::printf("%d trainings on %d ranks are those of one process, %.1f s\n", options.programs,
                size(), took.count());
  return 0;
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) { return kolo::test::end_of(kolo::test::run_programs, argc, argv); }
