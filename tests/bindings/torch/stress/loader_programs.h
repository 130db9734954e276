// Random programs about data, drawn as they run, alike on all ranks. The training loop's thread.
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
  std::filesystem::path folder;                       ///< of checkpoints, on rank 0
  std::function<void(const std::string& what)> note;  ///< told what is done next
};

/// Samplers and loaders of worlds that follow each other within an epoch and beyond. Throws
/// Differs, or what kolo throws.
void run_sampler_program(ProgramContext& context);

/// The Accelerator's loaders. Likewise.
void run_prepared_program(ProgramContext& context);

}  // namespace kolo::test
