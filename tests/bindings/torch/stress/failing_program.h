// A random training in which one rank fails: errors, state and further steps of the other ranks.
// The training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/fault.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo::test {

/// Makes the training on this rank; the training tells `progress` before each action that may take
/// long.
using MakeTraining = std::function<std::unique_ptr<Training>(const Progress& progress)>;

/// Prints this rank's findings in lines that training_faults reads. Returns 0 if nothing has failed
/// here or this rank is the one that fails; 3 if kolo has failed; 4 if kolo then did something
/// wrong.
int run_failing(const FaultOptions& options, std::uint64_t seed, const MakeTraining& make,
                const Progress& note);

}  // namespace kolo::test
