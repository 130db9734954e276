#include "tools/run/strays.h"

#include "tools/run/read_text.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

namespace kolo::run {
namespace {

/// Empty for a process that has ended, even between opening and reading the file.
std::string text_of(pid_t pid, const char* file) {
  const Result<std::string> text = read_text("/proc/" + std::to_string(pid) + file);
  return text.ok() ? text.value() : "";
}

/// -1 for a process that has ended.
pid_t parent_of(pid_t pid) {
  const std::string text = text_of(pid, "/stat");
  // "17 (its name) S 1 …"; the name may contain brackets, too.
  const auto end = text.rfind(')');
  constexpr std::size_t kToParent = 4;
  pid_t parent = -1;
  if (end == std::string::npos || text.size() <= end + kToParent) return -1;
  if (text[end + 2] == 'Z') return -1;
  std::from_chars(text.data() + end + kToParent, text.data() + text.size(), parent);
  return parent;
}

std::vector<pid_t> processes_below(pid_t top) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong == std::errc() && rest == name.data() + name.size())
      children.emplace(parent_of(pid), pid);
  }
  std::vector<pid_t> found = {top};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool has(std::string_view environment, std::string_view variable) {
  while (!environment.empty()) {
    const auto end = environment.find('\0');
    if (environment.substr(0, end) == variable) return true;
    if (end == environment.npos) return false;
    environment.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

std::vector<pid_t> strays_with(const std::string& variable) {
  std::vector<pid_t> found = processes_below(::getpid());
  std::erase_if(found, [&](pid_t pid) { return !has(text_of(pid, "/environ"), variable); });
  return found;
}

}  // namespace kolo::run
