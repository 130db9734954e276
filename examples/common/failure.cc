#include "examples/common/failure.h"

#include <fmt/format.h>
#include <kolo/torch.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace examples {

std::string failure_line(std::string_view program, const std::exception& exception) {
  const std::string what = kolo::reason_of(exception);
  if (!kolo::is_initialized() || what.starts_with("rank "))
    return fmt::format("{}: {}", program, what);
  return fmt::format("{}: rank {}: {}", program, kolo::rank(), what);
}

bool succeed_on_all(std::string_view program, const std::function<void()>& step) {
  std::string line;
  try {
    step();
  } catch (const std::exception& exception) {
    line = failure_line(program, exception);
  }
  const std::vector<bool> failed = kolo::allgather_object(!line.empty());
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (!failed[rank]) continue;
    if (std::cmp_equal(rank, kolo::rank())) fmt::print(stderr, "{}\n", line);
    return false;
  }
  return true;
}

void check_writable(const std::filesystem::path& file) {
  const auto status = std::filesystem::status(file);
  // Leave a pipe alone: its reader would see the end of the file when we close it.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
      !std::filesystem::is_directory(status))
    return;
  errno = 0;
  if (!std::ofstream(file, std::ios::app)) {
    throw std::runtime_error(
        fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
  }
  if (!std::filesystem::exists(status)) std::filesystem::remove(file);
}

}  // namespace examples
