#include "tools/perf/report_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace kolo::perf {
namespace {

[[noreturn]] void refuse(const std::string& path, int reason) {
  throw std::runtime_error(fmt::format("-J: cannot write '{}': {}", path, std::strerror(reason)));
}

}  // namespace

ReportFile::ReportFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "ae")) {
  if (file_ == nullptr) refuse(path_, errno);
}

void ReportFile::write(std::string_view text) {
  // A pipe or a terminal has nothing to replace.
  if (::ftruncate(::fileno(file_.get()), 0) != 0 && errno != EINVAL) refuse(path_, errno);
  const bool taken = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  const int reason = errno;
  const bool closed = std::fclose(file_.release()) == 0;
  if (!taken || !closed) refuse(path_, taken ? errno : reason);
}

}  // namespace kolo::perf
