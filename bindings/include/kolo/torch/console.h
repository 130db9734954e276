// What a run tells on its standard output: lines of rank 0 alone, the time of epochs, a bar.
// print() may be called by any thread; timer and bar belong to the training loop's.
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

/// Whether this process is the one that speaks: rank 0, and any before init() and after shutdown().
KOLO_API bool speaks();

/// One write of `line` and a line end to standard output, so that the lines of ranks that are
/// forced do not mix. Without `force` only where speaks().
KOLO_API void print_line(std::string_view line, bool force);

/// One line of the arguments one after another, as a std::ostream shows them, on rank 0:
/// print("epoch ", epoch, " loss ", loss).
template <class... Args>
void print(const Args&... args) {
  if (!speaks()) return;
  std::ostringstream line;
  (line << ... << args);
  print_line(std::move(line).str(), false);
}

/// The same, on every rank that calls it.
template <class... Args>
void force_print(const Args&... args) {
  std::ostringstream line;
  (line << ... << args);
  print_line(std::move(line).str(), true);
}

/// The time of each epoch and of all since it was made.
class KOLO_API EpochTimer {
 public:
  EpochTimer();
  /// Ends an epoch; the next begins. Seconds that it took.
  double lap();
  /// Begins the epoch anew, to leave out what was done since the last one (an evaluation, …).
  void restart();
  double last() const { return last_; }  ///< seconds of the last epoch
  double total() const;                  ///< seconds since the timer was made
  /// "Epoch 3 took 1.25 sec., total_time: 4.01 sec.", of the last lap.
  std::string line(std::int64_t epoch) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  Clock::time_point lap_start_;
  double last_ = 0;
};

struct ProgressBarOptions {
  enum class Mode : std::uint8_t {
    kAuto,   ///< moves where `out` is a terminal
    kMoves,  ///< moves
    kStill,  ///< only finish() shows something
  };
  Mode mode = Mode::kAuto;
  std::string label = {};   ///< in front of the bar
  std::FILE* out = stdout;  ///< not owned
  double interval_s = 0.1;  ///< seconds between two drawings at least
};

/// "label [######......] 30/60 note", on the rank that speaks; silent on the others.
class KOLO_API ProgressBar {
 public:
  /// `total` steps; 0 counts as done.
  explicit ProgressBar(std::int64_t total, ProgressBarOptions options = {});
  /// Shows that `step` steps are done, and `note`, if it is time to.
  void update(std::int64_t step, std::string_view note = {});
  /// The last step that update() was told, for good, on a line of its own.
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
