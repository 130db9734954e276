#include "tools/run/verdict.h"

#include "runtime/base/deadline.h"
#include "runtime/observe/flight_layout.h"
#include "tools/run/process.h"
#include "tools/run/say.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace kolo::run {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLimit(10);

/// Where the ranks of this host keep their files; empty: nowhere.
std::string folder_of(const Environment::Variables& variables) {
  const Environment environment(variables);
  const std::string folder =
      environment.get("KOLO_FLIGHT_RECORDER").value_or(environment.get("TMPDIR").value_or("/tmp"));
  return folder == "0" ? "" : folder;
}

/// The path up to the job, without rank and process. Each world of an elastic job has its own.
std::string world_of(const std::string& path) {
  return path.substr(0, path.find('.', path.rfind('/') + 1 + flight::kPrefix.size()));
}

/// What all files of the job hold.
std::string mark_of(const JobDescription& job) {
  return fmt::format("\"init_method\": \"{}\"", init_method_of(job));
}

/// The files of the ranks on this host, by name; those of an elastic job's last world first.
std::vector<std::string> files_of_job(const JobDescription& job, const std::vector<Place>& places,
                                      const Environment& environment, std::time_t since) {
  const auto here =
      std::find_if(places.begin(), places.end(), [](const Place& place) { return place.is_here; });
  if (here == places.end()) return {};
  const std::string folder = folder_of(command_for(job, *here, environment).variables);
  const std::string mark = mark_of(job);
  std::vector<std::string> files;
  std::string last_world;
  std::pair<std::time_t, long> last_change;
  std::error_code unknown;
  fs::directory_iterator entry(folder, unknown);
  for (const fs::directory_iterator end; !unknown && entry != end; entry.increment(unknown)) {
    const std::string path = entry->path();
    struct stat status = {};
    // An earlier job may have met at the same place.
    if (!entry->path().filename().string().starts_with(flight::kPrefix) ||
        ::stat(path.c_str(), &status) != 0 || status.st_ctime < since)
      continue;
    std::string text(kPage, '\0');
    std::ifstream(path).read(text.data(), static_cast<std::streamsize>(text.size()));
    if (text.find(mark) == std::string::npos) continue;
    files.push_back(path);
    const std::pair changed(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    if (changed < last_change) continue;
    last_change = changed;
    last_world = world_of(path);
  }
  std::sort(files.begin(), files.end());
  std::stable_partition(files.begin(), files.end(), [&last_world](const std::string& path) {
    return world_of(path) == last_world;
  });
  return files;
}

/// kolo-timeline stands beside kolo-run. Nothing if it cannot run, as without Python.
std::optional<std::string> ask_timeline(const std::string& self, std::vector<std::string> arguments,
                                        const Environment& environment) {
  const std::string tool = fs::path(self).parent_path() / "kolo-timeline";
  arguments.insert(arguments.begin(), {tool, "verdict"});
  auto started =
      start_process({}, {.arguments = std::move(arguments), .variables = environment.variables()},
                    {.captures_output = true});
  if (!started.ok()) return std::nullopt;
  const Deadline deadline = Deadline::after(kLimit);
  std::string text;
  bool ended = false;
  while (!ended && !deadline.expired()) {
    pollfd output = {started->out.get(), POLLIN, 0};
    if (::poll(&output, 1, 100) <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t count = ::read(started->out.get(), part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
    ended = count == 0;
  }
  if (!ended) send_signal(*started, SIGKILL);
  int status = 0;
  ::waitpid(started->pid, &status, 0);
  while (text.ends_with('\n')) text.pop_back();
  return exit_code_of(status) == 0 && !text.empty() ? std::optional(text) : std::nullopt;
}

/// Removes the files of the job on another host; the folder is chosen as the ranks there do.
constexpr std::string_view kRemovingScript = R"({{
{exports}folder=${{KOLO_FLIGHT_RECORDER:-${{TMPDIR:-/tmp}}}}
find "$folder" -maxdepth 1 -name '{prefix}*' -newermt @{since} -exec grep -lsF {mark} {{}} + |
  while read -r file; do rm -f "$file"; done
exit
}} >/dev/null 2>&1
)";

void remove_elsewhere(const JobDescription& job, const std::vector<Place>& places,
                      const Environment& environment, std::time_t since) {
  std::set<std::string> hosts;
  std::vector<Process> agents;
  for (const Place& place : places) {
    if (place.is_here || !hosts.insert(place.host).second) continue;
    Environment::Variables variables = environment.variables();
    for (const auto& [name, value] : variables_of(job, place, environment)) variables[name] = value;
    const auto folder = Environment(variables).get("KOLO_FLIGHT_RECORDER");
    if (folder == "0") return;
    using fmt::arg;
    Command command = command_on(
        job, place.host,
        fmt::format(kRemovingScript,
                    arg("exports", folder ? "KOLO_FLIGHT_RECORDER=" + quoted(*folder) + "\n" : ""),
                    arg("prefix", flight::kPrefix), arg("since", since),
                    arg("mark", quoted(mark_of(job)))));
    command.variables = environment.variables();
    auto started = start_process(place, command, {.captures_output = true});
    if (started.ok()) agents.push_back(*std::move(started));
  }
  const Deadline deadline = Deadline::after(kLimit);
  for (Process& agent : agents) {
    agent.input.reset();  // a script is shorter than what a pipe takes at once
    int status = 0;
    while (::waitpid(agent.pid, &status, WNOHANG) == 0) {
      if (deadline.expired()) send_signal(agent, SIGKILL);
      ::poll(nullptr, 0, 10);
    }
  }
}

}  // namespace

void tell_verdict(const JobDescription& job, const std::vector<Place>& places,
                  const Environment& environment, std::time_t since, const std::string& ended) {
  std::vector<std::string> arguments = files_of_job(job, places, environment, since);
  if (arguments.empty()) return;
  const std::string job_files = world_of(arguments.front());
  std::erase_if(arguments,
                [&job_files](const std::string& path) { return world_of(path) != job_files; });
  if (!ended.empty()) arguments.insert(arguments.begin(), {"--ended", ended});
  if (const auto text = ask_timeline(job.self, std::move(arguments), environment)) say(*text);
  std::set<std::string> others;
  for (const Place& place : places)
    if (!place.is_here) others.insert(place.host);
  say(fmt::format("the ranks' last operations: {}.*{} (kolo-timeline verdict FILES…)", job_files,
                  others.empty()
                      ? ""
                      : fmt::format(", and files of that name on {}", fmt::join(others, ", "))));
}

void remove_recordings(const JobDescription& job, const std::vector<Place>& places,
                       const Environment& environment, std::time_t since) {
  std::error_code unknown;
  for (const std::string& path : files_of_job(job, places, environment, since))
    fs::remove(path, unknown);
  remove_elsewhere(job, places, environment, since);
}

}  // namespace kolo::run
