// kolo-perf's command line. Parsed before kolo::init(), with the same result on every rank.
#pragma once

#include "tools/perf/audit.h"

#include <optional>
#include <string>
#include <vector>

namespace kolo::perf {

struct Options {
  SweepOptions sweep = {};
  bool audit = false;   ///< the sweep's sizes, by every algorithm
  double within = 1.1;  ///< AuditOptions::within
  std::vector<Memory> memories = {Memory::kPrivate, Memory::kShared};  ///< the audit's
  std::string step = {};  ///< "resnet50" or "small"; empty: the sweep
  std::vector<std::string> peers = {};
  bool limit = false;      ///< measure memcpy, too
  std::string json = {};   ///< path; empty: none
  unsigned timeout_s = 0;  ///< 0: none
  bool all_roots = false;
  bool on_gpu = false;
};

/// Nothing if the program ends with `exit_code`: 0 after --help, 2 after a wrong option.
std::optional<Options> parse(int argc, char** argv, int* exit_code);

}  // namespace kolo::perf
