// Output of a run on stdout: lines of rank 0, the time of epochs, a progress bar.
//
//   kolo::EpochTimer timer;
//   kolo::ProgressBar bar(steps, {.label = "train"});
//   for (int step = 0; step < steps; ++step) bar.update(step + 1);
//   bar.finish("done");
//   timer.lap();
//   kolo::print(timer.line(epoch));  // on rank 0
//
// Any thread may call print(). The training loop's thread uses the timer and the bar.
#pragma once

#include <kolo/export.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace kolo {

/// Whether this process prints: rank 0, and every process before init() and after shutdown().
KOLO_API bool speaks();

/// Writes `line` and a line end to stdout in one write, so that lines of several ranks do not mix.
/// Without `force` it writes only where speaks().
KOLO_API void print_line(std::string_view line, bool force);

/// Prints one line on rank 0: the arguments one after another, as a std::ostream shows them. E.g.
/// print("epoch ", epoch, " loss ", loss).
template <class... Args>
void print(const Args&... args) {
  if (!speaks()) return;
  std::ostringstream line;
  (line << ... << args);
  print_line(std::move(line).str(), false);
}

/// Prints one line like print(), on every rank that calls it.
template <class... Args>
void force_print(const Args&... args) {
  std::ostringstream line;
  (line << ... << args);
  print_line(std::move(line).str(), true);
}

/// Measures the time of each epoch and of all epochs since construction.
class KOLO_API EpochTimer {
 public:
  EpochTimer();
  /// Ends an epoch and begins the next one. Returns the seconds that the epoch took.
  double lap();
  /// Begins the epoch anew, to leave out the time since the last epoch (an evaluation, …).
  void restart();
  double last() const { return last_; }  ///< seconds of the last epoch
  double total() const;                  ///< seconds since construction
  /// "Epoch 3 took 1.25 sec., total_time: 4.01 sec.", with the time of the last lap.
  std::string line(std::int64_t epoch) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  Clock::time_point lap_start_;
  double last_ = 0;
};

struct ProgressBarOptions {
  enum class Mode : std::uint8_t {
    kAuto,   ///< moves if `out` is a terminal
    kMoves,  ///< moves
    kStill,  ///< only finish() shows something
  };
  Mode mode = Mode::kAuto;
  std::string label = {};   ///< in front of the bar
  std::FILE* out = stdout;  ///< not owned
  double interval_s = 0.1;  ///< least number of seconds between two drawings
};

/// Draws "label [######......] 30/60 note" where speaks(); draws nothing on other ranks.
class KOLO_API ProgressBar {
 public:
  /// `total` is the number of steps; 0 counts as done.
  explicit ProgressBar(std::int64_t total, ProgressBarOptions options = {});
  /// Shows that `step` steps are done, and `note`, unless the last drawing is too recent.
  void update(std::int64_t step, std::string_view note = {});
  /// Draws the last step that update() got, on a line that stays.
  void finish(std::string_view note = {});

 private:
  std::string text(std::int64_t step, std::string_view note) const;

  std::int64_t total_;
  ProgressBarOptions options_;
  bool speaks_;
  bool moves_;
  double last_shown_ = -1e9;
  std::int64_t last_step_ = 0;
};

}  // namespace kolo
