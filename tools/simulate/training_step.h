// A training step on a machine. Its gradients become ready as in a step that a timeline has
// recorded (KOLO_TIMELINE), are fused as the runtime fuses them, and travel one operation after the
// other. Called by kolo-simulate and tests; any thread.
#pragma once

#include "tools/simulate/machine.h"

#include <kolo/error.h>
#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::simulate {

struct Gradient {
  double ready_us = 0;  ///< after the first one
  std::uint64_t bytes = 0;
  DataType type = DataType::kFloat32;
};

/// What a rank does in a step.
struct Profile {
  std::vector<Gradient> gradients;  ///< by ready_us; at least one
  double compute_us = 0;            ///< all of the step but waiting for operations
};

/// The step of median length of a rank's timeline. A step begins when an all-reduce is submitted
/// whose name the step before has already had; the first and the last are left out.
/// kInvalidArgument: the file is no timeline, or has no three steps of named all-reduces.
Result<Profile> read_profile(const std::string& path);

struct StepTime {
  std::size_t operations = 0;
  double communication_us = 0;  ///< agreements and operations
  double exposed_us = 0;        ///< the part of it that comes after the last gradient
};
/// Errors: those of time_of() a collective.
Result<StepTime> time_of(const Machine& machine, const Profile& profile);

/// How long ranks take to agree on what is ready, by a locked plan: between hosts. Inside a host
/// they read flags, which is not counted.
double agreement_us(const Machine& machine);
/// agreement_us() without a plan: up and down the tree of the control plane, by the default of
/// KOLO_CONTROL_DEGREE.
double negotiation_us(const Machine& machine);

}  // namespace kolo::simulate
