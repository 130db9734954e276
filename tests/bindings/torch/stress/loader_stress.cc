// Random programs about the data of kolo::torch, one after the other. All ranks draw the same
// program and compare it with the result of one process. Run by kolo-run; see --help.
#include "tests/bindings/torch/stress/loader_programs.h"
#include "tests/support/hang_watch.h"
#include "tests/support/random_programs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <kolo/torch.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

/// Suppresses warnings of samplers whose last global batch is small.
class Silent : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Whether the program's results are right.
bool run_program(std::uint64_t seed, const RandomPrograms& options, HangWatch& watch,
                 const std::filesystem::path& folder) {
  watch.begin(seed);
  std::vector<std::string> done;
  const auto note = [&](const std::string& what) {
    watch.note(what);
    done.push_back(what);
    if (options.verbose) {
      std::fprintf(stderr, "rank %d: %s\n", rank(), what.c_str());
      std::fflush(stderr);
    }
  };
  ProgramContext context{.dice = Dice(seed * 2654435761 + static_cast<std::uint64_t>(size())),
                         .rank = rank(),
                         .size = size(),
                         .folder = folder,
                         .note = note};
  try {
    if (context.dice.one_in(3)) {
      run_prepared_program(context);
    } else {
      run_sampler_program(context);
    }
    note("waiting for the others");
    barrier();
    return true;
  } catch (const std::exception& error) {
    std::string text;
    for (const std::string& what : done) text += "  " + what + "\n";
    std::fprintf(stderr, "rank %d, --seed %llu: %s, after\n%s", rank(),
                 static_cast<unsigned long long>(seed), error.what(), text.c_str());
    return false;
  }
}

int run_programs(int argc, char** argv) {
  RandomPrograms options;
  CLI::App app(
      "Random programs about samplers, loaders and what is gathered of their batches. The same "
      "arguments on every rank.\n\nexamples:\n  kolo-run -np 3 loader_stress --programs 50\n"
      "  kolo-run -np 3 loader_stress --seed 117 --verbose   # one of them again");
  options.add_to(app, "program", "Print what each does next");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  Silent silent;
  c10::WarningUtils::set_warning_handler(&silent);
  init(argc, argv);
  const auto began = std::chrono::steady_clock::now();
  HangWatch watch{std::chrono::seconds(options.limit)};
  const auto folder = std::filesystem::path(broadcast_object(
      (std::filesystem::temp_directory_path() / fmt::format("kolo_loaders_{}", ::getpid()))
          .string(),
      0));
  bool right = true;
  for (int i = 0; i < options.programs && right; ++i)
    right = run_program(options.seed + static_cast<std::uint64_t>(i), options, watch, folder);
  if (rank() == 0) std::filesystem::remove_all(folder);
  // Give the others time to print what they find.
  if (!right) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (rank() == 0 && right)
    std::printf("%d programs on %d ranks see the data that they must, %.1f s\n", options.programs,
                size(), took.count());
  return right ? 0 : 1;
}

}  // namespace
}  // namespace kolo::test

int main(int argc, char** argv) { return kolo::test::end_of(kolo::test::run_programs, argc, argv); }
