// The command line of the rectified_flow example. Called by main, before anything else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rectified {

struct Flags {
  std::string data;               ///< folder of the IDX files; empty: where tools/setup puts them
  std::int64_t batch_size = 32;   ///< per rank
  std::int64_t global_batch = 0;  ///< images of all ranks; 0: batch_size decides
  std::int64_t epochs = 400;
  double learning_rate = 1e-4;
  std::uint64_t seed = 42;
  std::string device = "auto";  ///< as kolo::device() takes it
  std::size_t workers = 0;      ///< threads that read digits; 0: the training loop reads them
  std::int64_t save_every = 10;
  std::filesystem::path output_dir = "results";
  std::filesystem::path checkpoint;  ///< checkpoint to continue from; empty: none
  bool resume = false;               ///< continue from the newest checkpoint in output_dir
  std::int64_t width = 16;
  std::int64_t depth = 2;
  int threads = 1;             ///< compute threads per rank
  std::int64_t max_steps = 0;  ///< 0: all steps of all epochs
  std::int64_t samples = 8;    ///< generated images of each digit
  int sample_steps = 20;       ///< steps of Euler's method
};

/// Fills `flags`. A value is the exit status with which the program should end at once: after
/// --help, or after a wrong flag, which has been reported.
std::optional<int> parse(int argc, char** argv, Flags& flags);

}  // namespace rectified
