// Shared by the programs that run random programs on the ranks of a job: options, and exit status.
// Main thread.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace kolo::test {

struct RandomPrograms {
  std::uint64_t seed = 1;
  int programs = 1;
  int limit = 60;
  bool verbose = false;

  /// `kind` names one program, such as "training"; `verbose_text` says what --verbose prints.
  void add_to(CLI::App& app, const std::string& kind, const std::string& verbose_text) {
    app.add_option("--seed", seed, "Of the first " + kind)->capture_default_str();
    app.add_option("--programs", programs, "How many, of seeds that follow each other")
        ->capture_default_str();
    app.add_option("--limit", limit, "Seconds for one " + kind)->capture_default_str();
    app.add_flag("--verbose", verbose, verbose_text);
  }
};

/// The exit status of main(): that of `run`, or 5 after an exception, which is printed.
inline int end_of(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 5;
  }
}

}  // namespace kolo::test
