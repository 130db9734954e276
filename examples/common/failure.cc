#include "examples/common/failure.h"

#include <fmt/format.h>
#include <kolo/torch.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace examples {

std::string failure_line(std::string_view program, std::string_view what) {
  if (!kolo::is_initialized() || what.starts_with("rank "))
    return fmt::format("{}: {}", program, what);
  return fmt::format("{}: rank {}: {}", program, kolo::rank(), what);
}

bool succeed_on_all(std::string_view program, const std::function<void()>& step) {
  std::string error;
  try {
    step();
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  const std::vector<bool> failed = kolo::allgather_object(!error.empty());
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (!failed[rank]) continue;
    if (std::cmp_equal(rank, kolo::rank()))
      fmt::print(stderr, "{}\n", failure_line(program, error));
    return false;
  }
  return true;
}

void check_writable(const std::filesystem::path& file) {
  const auto status = std::filesystem::status(file);
  // Whoever reads a pipe would take this for its end.
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
