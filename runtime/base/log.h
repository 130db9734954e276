// Logging: one spdlog logger per Log object, so that N ranks in one process can name themselves.
// Lines go to stderr as "[kolo 2] warning: …". Thread-safe.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace kolo {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

class Log {
 public:
  /// `level` is a KOLO_LOG_LEVEL name; Config has already refused unknown ones.
  explicit Log(std::string_view level);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  /// Lines carry this rank from now on.
  void set_rank(int rank);

  bool enabled(LogLevel level) const;
  void write(LogLevel level, std::string_view line) const;

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::kDebug))
      write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::kInfo))
      write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::kWarning))
      write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::kError))
      write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace kolo
