#include <kolo/kolo.h>
#include <kolo/torch/console.h>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace kolo {
namespace {

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// mpirun gives its ranks a terminal even if its own output goes to a file. That terminal has a
// width of 0.
bool is_terminal(std::FILE* file) {
  winsize size{};
  const int number = fileno(file);
  return number >= 0 && isatty(number) == 1 && ioctl(number, TIOCGWINSZ, &size) == 0 &&
         size.ws_col > 0;
}

void write(std::FILE* out, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

bool speaks() {
  try {
    return rank() == 0;
  } catch (const Exception&) {
    return true;  // not initialised: no other process could print it
  }
}

void print_line(std::string_view line, bool force) {
  if (force || speaks()) write(stdout, fmt::format("{}\n", line));
}

EpochTimer::EpochTimer() : start_(Clock::now()), lap_start_(start_) {}

double EpochTimer::lap() {
  const Clock::time_point now = Clock::now();
  last_ = seconds(now - lap_start_);
  lap_start_ = now;
  return last_;
}

void EpochTimer::restart() { lap_start_ = Clock::now(); }

double EpochTimer::total() const { return seconds(Clock::now() - start_); }

std::string EpochTimer::line(std::int64_t epoch) const {
  return fmt::format("Epoch {} took {:.2f} sec., total_time: {:.2f} sec.", epoch, last_, total());
}

ProgressBar::ProgressBar(std::int64_t total, ProgressBarOptions options)
    : total_(total),
      options_(std::move(options)),
      speaks_(speaks()),
      moves_(options_.mode == ProgressBarOptions::Mode::kMoves ||
             (options_.mode == ProgressBarOptions::Mode::kAuto && is_terminal(options_.out))) {}

std::string ProgressBar::text(std::int64_t step, std::string_view note) const {
  constexpr std::int64_t kWidth = 24;
  const std::int64_t done = std::clamp<std::int64_t>(step, 0, std::max<std::int64_t>(total_, 0));
  const std::int64_t full = total_ <= 0 ? kWidth : kWidth * done / total_;
  return fmt::format("{}{}[{}{}] {}/{}{}{}", options_.label, options_.label.empty() ? "" : " ",
                     std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(kWidth - full), '.'), done, total_,
                     note.empty() ? "" : " ", note);
}

void ProgressBar::update(std::int64_t step, std::string_view note) {
  last_step_ = step;
  const double now = seconds(std::chrono::steady_clock::now().time_since_epoch());
  if (!speaks_ || !moves_ || now - last_shown_ < options_.interval_s) return;
  last_shown_ = now;
  write(options_.out, fmt::format("\r{}\033[K", text(step, note)));
}

void ProgressBar::finish(std::string_view note) {
  if (!speaks_) return;
  const std::string line = text(last_step_, note);
  write(options_.out, moves_ ? fmt::format("\r{}\033[K\n", line) : fmt::format("{}\n", line));
}

}  // namespace kolo
