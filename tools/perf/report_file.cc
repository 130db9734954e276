#include "tools/perf/report_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
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

/// Whether both descriptors are one file, as after `-J /dev/stdout > file`.
bool are_same(int one, int other) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

ReportFile::ReportFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "ae")) {
  if (file_ == nullptr) refuse(path_, errno);
}

void ReportFile::write(std::string_view text) {
  const int file = ::fileno(file_.get());
  // Keep a table that is in the same file, and append the report.
  const bool has_table = are_same(file, STDOUT_FILENO) || are_same(file, STDERR_FILENO);
  std::fflush(stdout);
  // EINVAL: a pipe or a terminal has nothing to truncate.
  if (!has_table && ::ftruncate(file, 0) != 0 && errno != EINVAL) refuse(path_, errno);
  const bool taken = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  const int reason = errno;
  const bool closed = std::fclose(file_.release()) == 0;
  if (!taken || !closed) refuse(path_, taken ? errno : reason);
}

}  // namespace kolo::perf
