#include "tools/run/command.h"

#include "tools/run/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kolo::run {
namespace {

// Variables of this environment that another host needs, besides those that tell ranks who they
// are.
constexpr std::array<std::string_view, 6> kForwarded = {
    "KOLO_", "UCX_", "OMP_", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH"};

bool is_forwarded(const std::string& name) {
  return std::any_of(kForwarded.begin(), kForwarded.end(), [&](std::string_view known) {
    return known.ends_with('_') ? name.starts_with(known) : name == known;
  });
}

/// The shell that reads the script has a session of its own. A signal to the agent must not end the
/// shell between the program's start and the guard's.
constexpr const char* kRemoteShell = "exec setsid -w sh -s";

/// The kolo-run of that host binds the rank and becomes its program: it alone knows the host's
/// cores.
constexpr std::string_view kBindingScript = R"(if [ -x {0} ]; then
  set -- {0} {1} {2} {3} {4} "$@"
elif [ {4} != none ]; then
  echo "kolo-run: there is no kolo-run at "{0}" on $(uname -n), so local rank {2} is not bound to cores" >&2
  [ {4} != core ] || exit 2
fi
)";

/// Runs the program in a session of its own, beside a guard. The guard passes signals on to the
/// program and ends it when the input ends, as it does when kolo-run ends. The braces make the
/// shell read the whole script before it begins. The script comes by the input, so that the secret
/// is on no command line.
/// What the program leaves running after an orderly end may still finish its writing. Processes in
/// other sessions are found by their environment, which a /proc file holds as one line. All are
/// found before any is signalled, so that none ends because its child has, without being asked.
constexpr std::string_view kRemoteScript = R"({{
echo '{login}'
strays() {{
  found=
  for file in $(grep -lsF {method} /proc/[0-9]*/environ); do
    tr '\0' '\n' <"$file" | grep -qxF {own} || continue
    pid=${{file#/proc/}}
    found="$found ${{pid%/environ}}"
  done
  any=1
  for pid in $found; do kill -s "$1" "$pid" && any=0; done
  return $any
}} 2>/dev/null
rest() {{
  kill -s 0 -- -$program || strays 0
}} 2>/dev/null
cd {directory} || exit 1
{exports}set -- {program}
{binding}exec 3<&0
setsid "$@" </dev/null 3<&- &
program=$!
unset KOLO_INIT_METHOD
{{
  grace={grace}
  while read -r word; do
    case $word in
      [0-9]*) grace=$word ;;
      STOP|CONT) kill -s "$word" -- $program -$program ;;  # even before it has its own session
      *) kill -s "$word" -- -$program ;;
    esac
  done <&3
  kill -s TERM -- $program -$program
  kill -s CONT -- $program -$program
  sleep "$grace"
  kill -s KILL -- -$program
}} >/dev/null 2>&1 &
guard=$!
wait $program
status=$?
left={grace}0
[ $status = 0 ] || left=0
while [ $left -gt 0 ] && rest; do
  sleep 0.1
  left=$((left - 1))
done
[ $status = 0 ] && kill -s TERM -- -$program 2>/dev/null && sleep 1
kill -s KILL -- -$program 2>/dev/null
if strays TERM; then
  left={grace}0
  while [ $left -gt 0 ] && strays 0; do
    sleep 0.1
    left=$((left - 1))
  done
  strays KILL
fi
kill $guard 2>/dev/null
exit $status
}}
)";

std::string remote_script(const JobDescription& job, const Place& place,
                          const Environment::Variables& variables) {
  std::string exports;
  for (const auto& [name, value] : variables) {
    if (is_name(name)) exports += fmt::format("export {}={}\n", name, quoted(value));
  }
  std::string program;
  for (const std::string& word : job.program) program += quoted(word) + " ";
  const std::string binding = fmt::format(kBindingScript, quoted(job.self), kAsRank,
                                          place.local_rank, place.local_size, job.bind);
  using fmt::arg;
  return fmt::format(kRemoteScript, arg("login", kLoggedIn.substr(0, kLoggedIn.size() - 1)),
                     arg("directory", quoted(job.directory)), arg("exports", exports),
                     arg("program", program), arg("binding", binding), arg("grace", kGrace.count()),
                     arg("method", quoted("KOLO_INIT_METHOD=" + init_method_of(job))),
                     arg("own", job.is_elastic ? fmt::format("KOLO_PROCESS={}", place.process)
                                               : fmt::format("KOLO_RANK={}", place.rank)));
}

}  // namespace

bool is_ssh(const std::vector<std::string>& agent) {
  return !agent.empty() && (agent[0] == "ssh" || agent[0].ends_with("/ssh"));
}

std::string signal_line(std::string_view signal) { return fmt::format("{}\n", signal); }

std::string grace_line(std::chrono::seconds grace) { return fmt::format("{}\n", grace.count()); }

bool is_name(std::string_view text) {
  const bool is_digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  return !text.empty() && !is_digit && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string init_method_of(const JobDescription& job) {
  if (job.is_elastic) return "elastic://" + job.store;
  return "tcp://" + job.store + "?server=launcher";
}

Environment::Variables variables_of(const JobDescription& job, const Place& place,
                                    const Environment& environment) {
  const auto text = [](int number) { return std::to_string(number); };
  const int size = std::max(job.size, place.rank + 1);  // an elastic job may grow
  Environment::Variables variables = {{"KOLO_RANK", text(place.rank)},
                                      {"KOLO_SIZE", text(size)},
                                      {"KOLO_LOCAL_RANK", text(place.local_rank)},
                                      {"KOLO_INIT_METHOD", init_method_of(job)},
                                      {"RANK", text(place.rank)},
                                      {"WORLD_SIZE", text(size)},
                                      {"LOCAL_RANK", text(place.local_rank)},
                                      {"LOCAL_WORLD_SIZE", text(place.local_size)},
                                      {"MASTER_ADDR", job.master_addr},
                                      {"MASTER_PORT", text(job.master_port)}};
  if (job.is_elastic) variables["KOLO_PROCESS"] = text(place.process);
  for (const std::string& item : job.set) {
    const auto equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (equals != std::string::npos) {
      variables[name] = item.substr(equals + 1);
    } else if (const auto value = environment.get(name)) {
      variables[name] = *value;
    }
  }
  if (!job.secret.empty()) variables["KOLO_SECRET"] = job.secret;
  return variables;
}

Command command_on(const JobDescription& job, const std::string& host, std::string script) {
  Command command{.arguments = job.agent, .input = std::move(script), .is_remote = true};
  if (is_ssh(job.agent)) {
    // Nobody can answer a question. ssh takes the first value of an option that is given twice.
    // After three intervals without an answer the host is lost, and an elastic job goes on.
    const char* const interval =
        job.is_elastic ? "ServerAliveInterval=10" : "ServerAliveInterval=30";
    for (const char* option : {"BatchMode=yes", "ConnectTimeout=30", interval}) {
      command.arguments.insert(command.arguments.end(), {"-o", option});
    }
  }
  command.arguments.push_back(host);
  command.arguments.emplace_back(kRemoteShell);
  return command;
}

Command command_for(const JobDescription& job, const Place& place, const Environment& environment) {
  Command command;
  command.variables = environment.variables();
  Environment::Variables own = variables_of(job, place, environment);
  if (place.is_here) {
    for (const auto& [name, value] : own) command.variables[name] = value;
    if (job.threads > 0) command.variables.emplace("OMP_NUM_THREADS", std::to_string(job.threads));
    command.arguments = job.program;
    return command;
  }
  for (const auto& [name, value] : environment.variables()) {
    if (is_forwarded(name)) own.emplace(name, value);
  }
  Command remote = command_on(job, place.host, remote_script(job, place, own));
  remote.variables = std::move(command.variables);
  return remote;
}

}  // namespace kolo::run
