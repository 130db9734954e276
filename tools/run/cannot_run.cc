#include "tools/run/cannot_run.h"

#include "tools/run/command.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace kolo::run {

std::string why_it_cannot_run(const std::string& program, int reason) {
  const std::string said = std::generic_category().message(reason);
  std::error_code unknown;
  const bool has_path = program.find('/') != std::string::npos;
  const bool is_here = !program.empty() && std::filesystem::exists(program, unknown);
  if (reason == EACCES && has_path && std::filesystem::is_directory(program, unknown))
    return std::generic_category().message(EISDIR);
  if (reason == EACCES && has_path && is_here) {
    return fmt::format("{}; chmod +x {}, or give the interpreter of a script before it", said,
                       program);
  }
  if (reason != ENOENT) return said;
  if (has_path && is_here) {
    return fmt::format(
        "{}; it is there, but not its interpreter (#! in its first line) or its "
        "loader",
        said);
  }
  if (!has_path && is_here) {
    return fmt::format("{} in PATH; for the one in this folder give ./{}", said, program);
  }
  const auto equals = program.find('=');
  if (equals != std::string::npos && is_name(program.substr(0, equals)))
    return fmt::format("{}; variables of the ranks are set by -x {}", said, program);
  return said;
}

}  // namespace kolo::run
