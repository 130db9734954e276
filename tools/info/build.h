// What kolo-info says about the build and the machine without a job: the table of what is in it,
// and every knob with its value. The main thread.
#pragma once

#include "runtime/base/environment.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace kolo::info {

/// One thing that may be there or not.
struct Part {
  std::string name;
  bool there = false;
  std::string remark = {};  ///< version, or why it is missing
};

/// Frameworks, bootstraps, transports, tensor operations and devices, then versions and the host's
/// cores. Starts kolo as a world of one.
nlohmann::json build_json();
void print_build(const nlohmann::json& build);

/// Each knob with its value, where that comes from, whether it is to be equal on all ranks, and why
/// init() refuses it (null: it does not); of KOLO_SECRET only whether it is set.
nlohmann::json knobs_json(const Environment& environment);
void print_knobs(const nlohmann::json& knobs);
/// To stderr: what init() would refuse, and which KOLO_ variables are none. False if it would
/// refuse.
bool warn_of_knobs(const Environment& environment);

}  // namespace kolo::info
