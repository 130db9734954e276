// A random training in which one rank fails: what the others say, have and can do then. The
// training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/fault.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo::test {

/// Makes the training on this rank, which tells `progress` before each thing that may take long.
using MakeTraining = std::function<std::unique_ptr<Training>(const Progress& progress)>;

/// Prints what this rank finds, in lines that training_faults reads. Returns 0 where nothing has
/// failed here or this rank is the one that has; 3: kolo has failed; 4: what it did then is wrong.
int run_failing(const FaultOptions& options, std::uint64_t seed, const MakeTraining& make,
                const Progress& note);

}  // namespace kolo::test
