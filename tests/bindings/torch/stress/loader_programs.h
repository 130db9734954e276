// Random programs about data, drawn while they run, the same on all ranks. The training loop's
// thread.
#pragma once

#include "tests/support/dice.h"

#include <filesystem>
#include <functional>
#include <string>

namespace kolo::test {

struct ProgramContext {
  Dice dice;
  int rank = 0;
  int size = 1;
  std::filesystem::path folder;                       ///< for checkpoints, on rank 0
  std::function<void(const std::string& what)> note;  ///< told the next action
};

/// Runs samplers and loaders of worlds that follow each other within an epoch and beyond. Throws
/// Differs, or kolo's exception.
void run_sampler_program(ProgramContext& context);

/// Runs the Accelerator's loaders. Throws as run_sampler_program().
void run_prepared_program(ProgramContext& context);

}  // namespace kolo::test
