#include "runtime/base/log.h"

#include "runtime/base/printable.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kolo {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

Log::Log(std::string_view level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  logger_ = std::make_shared<spdlog::logger>("kolo", std::move(sink));
  logger_->set_pattern("[%n] %l: %v");
  logger_->set_level(spdlog::level::from_str(std::string(level)));
  logger_->flush_on(spdlog::level::trace);
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::set_rank(int rank) { logger_->set_pattern(fmt::format("[%n {}] %l: %v", rank)); }

bool Log::enabled(LogLevel level) const { return logger_->should_log(to_spdlog(level)); }

void Log::write(LogLevel level, std::string_view line) const {
  if (enabled(level)) logger_->log(to_spdlog(level), printable(line));
}

}  // namespace kolo
