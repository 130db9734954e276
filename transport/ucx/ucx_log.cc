#include "transport/ucx/ucx_log.h"

#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;

// UCX writes the lines of one failure closer together than this. A longer gap separates failures.
constexpr std::chrono::seconds kBurst(1);

std::atomic<bool> shows_all = true;

/// The first error of a burst.
struct Complaint {
  std::mutex mutex;
  std::string text;             ///< guarded by mutex, like `last`
  Clock::time_point last = {};  ///< time of the burst's latest error
};
// Never destroyed: UCX's own thread may still write at the end of the process.
Complaint& complaint() {
  static auto* const all = new Complaint;
  return *all;
}

void keep(std::string_view text) {
  Complaint& kept = complaint();
  const std::lock_guard lock(kept.mutex);
  const auto now = Clock::now();
  if (kept.text.empty() || now - kept.last > kBurst) kept.text = text;
  kept.last = now;
}

ucs_log_func_rc_t take_line(const char* file, unsigned line, const char*, ucs_log_level_t level,
                            const ucs_log_component_config_t* component, const char* format,
                            va_list arguments) {
  std::array<char, 1024> text = {};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level == UCS_LOG_LEVEL_ERROR) keep(text.data());
  if (level != UCS_LOG_LEVEL_ERROR || shows_all) {
    const std::string_view path = file;
    std::fprintf(stderr, "[%d] %s:%u %s %s %s\n", ::getpid(),
                 path.substr(path.rfind('/') + 1).data(), line, component->name,
                 ucs_log_level_names[level], text.data());
  }
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void take_ucx_log(const UcxOptions& options) {
  static std::once_flag once;
  if (options.environment.get("UCX_LOG_FILE")) return;
  shows_all = options.shows_log || options.environment.get("UCX_LOG_LEVEL").has_value();
  // Writes to stderr. UCX's default, stdout, would mix its lines with what the program prints for
  // others to read.
  std::call_once(once, [] { ucs_log_push_handler(&take_line); });
}

std::string ucx_complaint() {
  Complaint& kept = complaint();
  const std::lock_guard lock(kept.mutex);
  std::string text = std::exchange(kept.text, {});
  return Clock::now() - kept.last > kBurst ? std::string() : text;
}

}  // namespace kolo
