// The command line of kolo-simulate.
#pragma once

#include "tools/simulate/collective.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::simulate {

struct Options {
  Machine machine;         ///< but for its hosts
  std::vector<int> hosts;  ///< one machine of each
  std::vector<OperationKind> kinds;
  std::vector<std::uint64_t> sizes;
  DataType type = DataType::kFloat32;
  std::vector<Algorithm> algorithms;  ///< empty: all that apply
  std::optional<std::string> step;    ///< a timeline whose step is played, in place of collectives
  bool start_up = false;              ///< instead of collectives
  int cores = 0;                      ///< see start_up_of()
  bool json = false;
};

/// Nothing if the program is to end: its exit status is then *exit_code.
std::optional<Options> parse(int argc, char** argv, int* exit_code);

/// The word of a collective on the command line, as kolo-perf has it.
std::string_view word_of(OperationKind kind);

}  // namespace kolo::simulate
