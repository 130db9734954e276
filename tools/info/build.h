// What kolo-info says about the build and the machine without a job: what the build contains, and
// every knob with its value. Main thread.
#pragma once

#include "runtime/base/environment.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace kolo::info {

/// One thing that the build or the machine may have.
struct Part {
  std::string name;
  bool there = false;
  std::string remark = {};  ///< version, or why it is missing
};

/// Frameworks, bootstraps, transports, tensor operations and devices, then versions and the host's
/// cores. Starts kolo as a world of one.
nlohmann::json build_json();
void print_build(const nlohmann::json& build);

/// Each knob with its value, the value's origin, whether it must be equal on all ranks, and why
/// init() refuses it (null if not). For KOLO_SECRET only whether it is set.
nlohmann::json knobs_json(const Environment& environment);
void print_knobs(const nlohmann::json& knobs);
/// Prints to stderr what init() would refuse, and which KOLO_ variables do not exist. False if
/// init() would refuse something.
bool warn_of_knobs(const Environment& environment);

}  // namespace kolo::info
