// Output of the mnist example: the progress bar, one line per epoch, and the files of --log-losses
// and --json. Used by main on rank 0 alone.
#pragma once

#include "examples/mnist/flags.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mnist {

struct Epoch {
  int number = 0;  ///< from 1
  std::int64_t steps = 0;
  double loss = 0;  ///< mean over the epoch's training images
  double test_loss = 0;
  double accuracy = 0;               ///< 0 … 1, on the test images
  double images_per_second = 0;      ///< all ranks together, training alone
  std::vector<double> step_seconds;  ///< each step of this rank, batch loading and waiting included
};

/// Prints one line per epoch; on a terminal, a moving bar before that.
class Progress {
 public:
  /// Precondition: `mode` is auto, bar or lines.
  Progress(const std::string& mode, int epochs);
  /// Redraws the bar, at most ten times a second.
  void show(int epoch, std::int64_t step, std::int64_t steps, double loss,
            double images_per_second);
  /// The epoch's final line.
  void finish(const Epoch& epoch);

 private:
  bool moves_;
  int epochs_;
  double last_shown_ = 0;
};

/// Appends {"step": 1, "epoch": 1, "loss": 2.3} for each loss; steps count from first_step. Throws
/// std::runtime_error with the file's name if it cannot be written.
void append_losses(const std::string& file, std::int64_t first_step, int epoch,
                   const std::vector<double>& losses);

struct Run {
  int ranks = 1;
  int threads = 1;
  std::int64_t global_batch = 0;
  std::vector<Epoch> epochs;
  bool identical_parameters = false;
};

/// Throws as append_losses does.
void write_report(const Flags& flags, const Run& run);

}  // namespace mnist
