#include "tools/run/foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace kolo::run {
namespace {

/// Hosts that have ranks, with the number of their ranks, in order.
std::vector<Host> used_hosts(const Plan& plan) {
  std::vector<Host> hosts;
  for (const Host& host : plan.hosts) {
    const auto ranks = std::count_if(plan.places.begin(), plan.places.end(),
                                     [&](const Place& place) { return place.host == host.name; });
    if (ranks > 0) hosts.push_back({host.name, static_cast<int>(ranks), host.is_here});
  }
  return hosts;
}

/// The prefix that ends a launcher in time, with kolo-run's exit status, where kolo-run cannot.
std::vector<std::string> limited_to(int seconds) {
  if (seconds == 0) return {};
  return {"timeout", "--foreground", std::to_string(seconds)};
}

/// Escapes a file's name for srun, where % begins a pattern.
std::string plain(const std::string& folder) {
  std::string text;
  for (const char c : folder) text.append(c == '%' ? 2 : 1, c);
  return text;
}

constexpr const char* kSecret = "KOLO_SECRET";

std::string name_of(const std::string& item) { return item.substr(0, item.find('=')); }

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::vector<std::string> mpirun_command(const Options& options, const Plan& plan,
                                        const Environment& environment, bool as_root,
                                        bool to_copy) {
  std::vector<std::string> command = limited_to(to_copy ? options.timeout : 0);
  const auto add = [&](auto... words) { (command.emplace_back(words), ...); };
  add("mpirun");
  if (as_root) add("--allow-run-as-root");
  if (plan.job.is_elastic && !to_copy) add("--enable-recovery");
  add("-np", std::to_string(plan.places.size()));
  const auto hosts = used_hosts(plan);
  if (hosts.size() > 1 || !hosts.front().is_here) {
    std::vector<std::string> items;
    for (const Host& host : hosts) items.push_back(fmt::format("{}:{}", host.name, host.slots));
    add("-H", fmt::format("{}", fmt::join(items, ",")));
  } else {
    add("--oversubscribe");
  }
  add("--map-by", options.mapping == Mapping::kNode ? "node" : "slot");
  add("--bind-to", options.bind == "core" ? "core" : "none");
  if (options.job.tags_output) add("--tag-output");
  if (!options.job.output_directory.empty()) add("--output-filename", options.job.output_directory);
  std::map<std::string, std::string> items;  // by name: the word after -x
  if (!to_copy || environment.get(kSecret)) items[kSecret] = kSecret;
  for (const auto& [name, value] : environment.variables()) {
    if (name.starts_with("KOLO_") || name.starts_with("UCX_")) items[name] = name;
  }
  for (const std::string& item : plan.job.set) {
    const std::string name = name_of(item);
    if (!to_copy) {
      items[name] = name;
    } else if (name != kSecret && (name != item || environment.get(name))) {
      items[name] = item;
    }
  }
  for (const auto& [name, item] : items) add("-x", item);
  command.insert(command.end(), plan.job.program.begin(), plan.job.program.end());
  return command;
}

std::vector<std::string> srun_command(const Options& options, const Plan& plan, bool to_copy) {
  std::vector<std::string> command = limited_to(to_copy ? options.timeout : 0);
  const auto add = [&](std::string word) { command.push_back(std::move(word)); };
  add("srun");
  const bool is_elastic = plan.job.is_elastic && !to_copy;
  add(is_elastic ? "--kill-on-bad-exit=0" : "--kill-on-bad-exit=1");
  if (is_elastic) add("--no-kill");
  add(fmt::format("--ntasks={}", plan.places.size()));
  // Otherwise srun sorts the hosts and distributes the ranks as it likes.
  add("--distribution=arbitrary");
  if (options.job.tags_output) add("--label");
  if (!options.job.output_directory.empty()) {
    const std::string folder = plain(options.job.output_directory);
    add(fmt::format("--output={}/rank.%t.out", folder));
    add(fmt::format("--error={}/rank.%t.err", folder));
  }
  command.insert(command.end(), plan.job.program.begin(), plan.job.program.end());
  return command;
}

std::string hosts_of_ranks(const Plan& plan) {
  std::string lines;
  for (const Place& place : plan.places) lines += place.host + "\n";
  return lines;
}

Environment::Variables variables_for(const JobDescription& job, const Environment& environment) {
  Environment::Variables variables = environment.variables();
  for (const std::string& item : job.set) {
    const auto equals = item.find('=');
    if (equals != std::string::npos) variables[item.substr(0, equals)] = item.substr(equals + 1);
  }
  variables[kSecret] = job.secret;
  return variables;
}

void tell_where_rank_0_is(const Options& options, const Plan& plan,
                          Environment::Variables& variables) {
  constexpr const char* kAddress = "MASTER_ADDR";
  const bool is_asked_for =
      std::any_of(plan.job.set.begin(), plan.job.set.end(),
                  [](const std::string& item) { return name_of(item) == kAddress; });
  const bool is_listed = !options.hosts.empty() || !options.hostfile.empty();
  if (is_listed && !is_asked_for) variables.erase(kAddress);
  if (plan.places.front().local_size == plan.job.size) return;
  variables.emplace(kAddress, plan.job.master_addr);
  variables.emplace("MASTER_PORT", std::to_string(plan.job.master_port));
}

std::string to_shell(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), is_plain);
  return plain ? word : quoted(word);
}

std::string to_shell(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(to_shell(word));
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace kolo::run
