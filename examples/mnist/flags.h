// The command line of the mnist example. Called by main, before anything else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mnist {

struct Flags {
  std::string data;                 ///< folder of the IDX files; empty: where tools/setup puts them
  std::int64_t batch_size = 0;      ///< images per rank; 0: global_batch decides
  std::int64_t global_batch = 128;  ///< images of all ranks; shares may be uneven
  int epochs = 8;
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  bool dropout = true;
  int threads = 0;  ///< compute threads of a rank; 0: cores / ranks on this host
  int spawn = 0;    ///< ranks to start on this host; 0: a launcher starts them, or there is one
  std::int64_t max_steps = 0;     ///< 0: all steps of all epochs
  std::string device = "auto";    ///< as kolo::device() takes it
  std::string progress = "auto";  ///< auto, bar or lines
  std::string losses_file;        ///< JSON lines, one a step; empty: none
  std::string report_file;        ///< JSON; empty: none
};

/// Fills `flags`. A value is the exit status with which the program should end at once: after
/// --help, or after a wrong flag, which has been reported.
std::optional<int> parse(int argc, char** argv, Flags& flags);

}  // namespace mnist
