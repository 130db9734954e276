// What the programs of this folder share: flags, digits, and the report. Each program is one way to
// train the network of the mnist example, written out in full, so that they can be laid side by
// side. Pure helpers; main thread.
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
  std::size_t images = 0;  ///< of the training images, from the first; 0: all
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  int threads = 1;              ///< compute threads per rank
  std::string device = "auto";  ///< as kolo::device() takes it
  std::vector<torch::Device> devices = {torch::kCPU,
                                        torch::kCPU};  ///< where taken: of each process
  torch::ScalarType dtype = torch::kBFloat16;          ///< where taken: of autocast
};

/// Flags that not every program takes.
struct Extra {
  bool devices = false;
  bool device = true;
  bool dtype = false;
  bool ranks = true;  ///< several of them; else it is one process
  /// Of flags that the program takes itself, before the others are looked at.
  std::function<void(int& argc, char** argv)> take_flags = {};
};

struct Data {
  mnist::Digits train;
  mnist::Digits test;
};
/// With the first `images` for training. Throws as mnist::load_digits.
Data load(const Flags& flags);

/// What --device says, without kolo: "auto" is the first GPU, or the CPU where there is none.
torch::Device stock_device(const Flags& flags);

/// The right answers among the test digits `rank`, `rank` + `size`, …, and how many these are.
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
/// The same of a program that knows no ranks.
int run_alone(int argc, char** argv, const std::string& about,
              const std::function<void(const Flags&)>& train);

}  // namespace styles
