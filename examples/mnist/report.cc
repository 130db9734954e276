#include "examples/mnist/report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace mnist {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// mpirun gives its ranks a terminal even if its own output goes to a file, but this terminal has no
// width.
bool is_terminal() {
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
         size.ws_col > 0;
}

std::string bar(std::int64_t step, std::int64_t steps) {
  constexpr std::int64_t kWidth = 24;
  const std::int64_t full = steps == 0 ? kWidth : kWidth * step / steps;
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(kWidth - full), '.'));
}

std::ofstream open(const std::string& file, std::ios::openmode mode) {
  std::ofstream out(file, mode);
  if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", file));
  return out;
}

void close(std::ofstream& out, const std::string& file) {
  out.close();
  if (!out) throw std::runtime_error(fmt::format("{}: could not be written to its end", file));
}

}  // namespace

Progress::Progress(const std::string& mode, int epochs)
    : moves_(mode == "bar" || (mode == "auto" && is_terminal())), epochs_(epochs) {}

void Progress::show(int epoch, std::int64_t step, std::int64_t steps, double loss,
                    double images_per_second) {
  const double time = now();
  if (!moves_ || (time - last_shown_ < 0.1 && step < steps)) return;
  last_shown_ = time;
  fmt::print("\repoch {}/{} {} {}/{}  loss {:.4f}  {:.0f} images/s \033[K", epoch, epochs_,
             bar(step, steps), step, steps, loss, images_per_second);
  std::fflush(stdout);
}

void Progress::finish(const Epoch& epoch) {
  fmt::print(
      "{}epoch {}/{} {} {} steps  loss {:.4f}  test loss {:.4f}  accuracy {:.2f} %  "
      "{:.0f} images/s{}\n",
      moves_ ? "\r" : "", epoch.number, epochs_, bar(1, 1), epoch.steps, epoch.loss,
      epoch.test_loss, 100 * epoch.accuracy, epoch.images_per_second, moves_ ? "\033[K" : "");
  std::fflush(stdout);
}

void append_losses(const std::string& file, std::int64_t first_step, int epoch,
                   const std::vector<double>& losses) {
  std::ofstream out = open(file, first_step == 1 ? std::ios::trunc : std::ios::app);
  for (const double loss : losses) {
    fmt::print(out, "{{\"step\": {}, \"epoch\": {}, \"loss\": {:.9g}}}\n", first_step++, epoch,
               loss);
  }
  close(out, file);
}

void write_report(const Flags& flags, const Run& run) {
  std::ofstream out = open(flags.report_file, std::ios::trunc);
  fmt::print(out,
             "{{\n  \"ranks\": {},\n  \"threads\": {},\n  \"global_batch\": {},\n  \"seed\": {},\n"
             "  \"learning_rate\": {:g},\n  \"dropout\": {},\n  \"identical_parameters\": {},\n"
             "  \"accuracy\": {:.6f},\n  \"epochs\": [",
             run.ranks, run.threads, run.global_batch, flags.seed, flags.learning_rate,
             flags.dropout, run.identical_parameters,
             run.epochs.empty() ? 0.0 : run.epochs.back().accuracy);
  const char* separator = "\n";
  for (const Epoch& epoch : run.epochs) {
    fmt::print(out,
               "{}    {{\"epoch\": {}, \"steps\": {}, \"loss\": {:.6f}, \"test_loss\": {:.6f}, "
               "\"accuracy\": {:.6f}, \"images_per_second\": {:.1f}, \"step_seconds\": [{:.6f}]}}",
               separator, epoch.number, epoch.steps, epoch.loss, epoch.test_loss, epoch.accuracy,
               epoch.images_per_second, fmt::join(epoch.step_seconds, ", "));
    separator = ",\n";
  }
  fmt::print(out, "\n  ]\n}}\n");
  close(out, flags.report_file);
}

}  // namespace mnist
