#include "runtime/base/available_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string_view>

namespace kolo {
namespace {

/// The number behind `wanted` in a file of lines "name number" or "name: number kB".
std::optional<std::size_t> number_of(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string name;
  std::string rest;
  for (std::size_t number = 0; file >> name >> number; std::getline(file, rest))
    if (name == wanted) return number;
  return std::nullopt;
}

/// Bytes that the control group in `folder` can still take. The file names depend on the version;
/// `inactive` and `active` count the page cache. SIZE_MAX if a file is missing or says "max".
std::size_t left_in(const std::string& folder, const char* limit, const char* usage,
                    const char* inactive, const char* active) {
  std::size_t most = 0;
  std::size_t used = 0;
  if (!(std::ifstream(folder + limit) >> most) || !(std::ifstream(folder + usage) >> used))
    return SIZE_MAX;
  // Usage includes the page cache, which the kernel reclaims when memory is needed.
  for (const char* const files : {inactive, active})
    used -= std::min(used, number_of(folder + "/memory.stat", files).value_or(0));
  return most - std::min(most, used);
}

}  // namespace

std::size_t available_memory(const std::string& of_host, const ControlGroupPaths& groups) {
  const auto kib = number_of(of_host, "MemAvailable:");
  std::size_t least = kib ? *kib << 10 : SIZE_MAX;
  for (const std::string& folder : control_groups("memory", groups)) {
    least = std::min(
        {least, left_in(folder, "/memory.max", "/memory.current", "inactive_file", "active_file"),
         left_in(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file",
                 "total_active_file")});
  }
  return least;
}

}  // namespace kolo
