// Shared by the programs of this folder: flags, digits, and the report. Each program trains the
// network of the mnist example in one style. It is written out in full, so that two programs can be
// compared line by line. Main thread.
#pragma once

#include "examples/mnist/digits.h"
#include "examples/mnist/network.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace styles {

struct Flags {
  std::string data;             ///< folder of the IDX files; empty: where tools/setup puts them
  std::size_t batch_size = 64;  ///< per rank
  int epochs = 4;
  std::size_t images = 0;  ///< training images to use, from the first; 0: all
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  int threads = 1;              ///< compute threads per rank
  std::string device = "auto";  ///< as kolo::device() takes it
  std::vector<torch::Device> devices = {torch::kCPU,
                                        torch::kCPU};  ///< devices of each process, with --devices
  torch::ScalarType dtype = torch::kBFloat16;          ///< half type of autocast, with --dtype
};

/// Flags that only some programs take.
struct Extra {
  bool devices = false;
  bool device = true;
  bool dtype = false;
  bool ranks = true;  ///< false: the program is one process
  /// Takes the flags that the program parses itself, before the others are parsed.
  std::function<void(int& argc, char** argv)> take_flags = {};
};

struct Data {
  mnist::Digits train;
  mnist::Digits test;
};
/// Keeps the first `images` for training. Throws as mnist::load_digits does.
Data load(const Flags& flags);

/// What --device says, without kolo: "auto" is the first GPU, or the CPU where there is none.
torch::Device stock_device(const Flags& flags);

/// The number of right answers among the test digits `rank`, `rank` + `size`, …, and the number of
/// these digits.
struct Answers {
  std::int64_t right = 0;
  std::int64_t count = 0;
};
using Forward = std::function<torch::Tensor(torch::Tensor)>;
Answers answer(const Forward& forward, const mnist::Digits& test, torch::Device device, int rank,
               int size);

/// Measures an epoch and prints its line.
class EpochReport {
 public:
  EpochReport(int epoch, const Flags& flags) : epoch_(epoch), epochs_(flags.epochs) {}
  /// "epoch 1/4: loss 0.5213, accuracy 93.10 %, 2400 images/s".
  void print(double loss, double accuracy, std::size_t images) const;

 private:
  int epoch_;
  int epochs_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The program's main: parses the flags, calls `train`, turns exceptions into one line and exit
/// status 1. `about` is the first line of --help.
int run(int argc, char** argv, const std::string& about,
        const std::function<void(const Flags&)>& train, const Extra& extra = {});
/// As run(), for a program without ranks.
int run_alone(int argc, char** argv, const std::string& about,
              const std::function<void(const Flags&)>& train);

}  // namespace styles
