#include "tools/run/placement.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/host_list.h"
#include "runtime/bootstrap/store_wire.h"
#include "tools/run/read_text.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

namespace kolo::run {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kInNoName = " \t\r\n,;=/\\'\"";

std::string_view without_blanks(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

Result<Host> parse_host(std::string_view item) {
  std::string_view name = item;
  std::string_view slots;  // including the colon
  const auto bracket = item.starts_with('[') ? item.find(']') : std::string_view::npos;
  if (bracket != std::string_view::npos) {
    name = item.substr(1, bracket - 1);
    slots = item.substr(bracket + 1);
  } else if (!is_v6_address(item) && item.find(':') != std::string_view::npos) {
    name = item.substr(0, item.find(':'));
    slots = item.substr(name.size());
  }
  bool valid = bracket != std::string_view::npos ? is_v6_address(name)
                                                 : !name.empty() && !name.starts_with('-') &&
                                                       name.find_first_of(kInNoName) == name.npos;
  Host host{std::string(name), 1};
  if (!slots.empty()) {
    const auto count = parse_count(slots.substr(1));
    valid = valid && slots.starts_with(':') && count && *count > 0 && *count <= kMostRanks;
    if (valid) host.slots = *count;
  }
  if (valid) return host;
  return KOLO_ERROR(kInvalidArgument,
                    "'{}' is no host: expected name or name:slots, as node1:4 or [fd00::2]:4",
                    item);
}

/// The slots of a host that is named more than once are added up.
void add(std::vector<Host>& hosts, Host host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const Host& other) { return other.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    same->slots += host.slots;
  }
}

/// One slot for each line that names a host.
std::vector<Host> hosts_by_lines(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream words(text);
  for (std::string name; words >> name;) add(hosts, {name, 1});
  return hosts;
}

}  // namespace

bool is_v6_address(std::string_view text) {
  const auto zone = text.find('%');
  if (zone != text.npos && (zone + 1 == text.size() || text.find(':', zone) != text.npos))
    return false;
  in6_addr address;
  return ::inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(), &address) == 1;
}

Result<std::vector<Host>> parse_hosts(std::string_view list) {
  std::vector<Host> hosts;
  while (true) {
    const auto comma = list.find(',');
    KOLO_ASSIGN(Host host, parse_host(without_blanks(list.substr(0, comma))));
    add(hosts, std::move(host));
    if (comma == std::string_view::npos) return hosts;
    list.remove_prefix(comma + 1);
  }
}

Result<std::vector<Host>> parse_hostfile(std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    for (std::string word; words >> word;) {
      // Open MPI's limit for more ranks than slots; kolo-run refuses those anyway.
      if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
      constexpr std::string_view kSlots = "slots=";
      if (!word.starts_with(kSlots)) {
        return KOLO_ERROR(kInvalidArgument,
                          "line {} of the host file, '{}', is wrong at '{}': expected a host and "
                          "its slots, as node1 slots=4 or node1:4",
                          number, without_blanks(line), word);
      }
      if (is_v6_address(name)) name = "[" + name + "]";
      name += ":" + word.substr(kSlots.size());
    }
    KOLO_ASSIGN(Host host, parse_host(name));
    add(hosts, std::move(host));
  }
  if (hosts.empty()) return KOLO_ERROR(kInvalidArgument, "the host file names no host");
  return hosts;
}

Result<std::vector<Host>> allocated_hosts(const Environment& environment, int ranks) {
  std::vector<Host> hosts;
  if (const auto parts = environment.get_int("SLURM_HET_SIZE"); parts && *parts > 1) {
    return KOLO_ERROR(kInvalidArgument,
                      "this allocation of Slurm is heterogeneous (SLURM_HET_SIZE={}), and kolo-run "
                      "takes the hosts of none of its parts by itself: give them by -H or "
                      "--hostfile, or start the ranks by srun --het-group",
                      *parts);
  }
  if (const auto list = environment.get("SLURM_JOB_NODELIST")) {
    KOLO_ASSIGN(const auto names, expand_node_list(*list));
    KOLO_ASSIGN(const auto slots,
                expand_task_counts(environment.get("SLURM_TASKS_PER_NODE").value_or("1")));
    for (std::size_t i = 0; i < names.size(); ++i) {
      add(hosts, {names[i], i < slots.size() ? slots[i] : 1});
    }
    int tasks = 0;
    for (const Host& host : hosts) tasks += host.slots;
    if (ranks > tasks) {
      return KOLO_ERROR(kInvalidArgument,
                        "{} ranks are more than the tasks that Slurm has granted here, {} "
                        "(SLURM_TASKS_PER_NODE={}); ask it for {} (salloc, sbatch or srun with -n "
                        "{}), or start them on this host all the same: -H localhost:{}",
                        ranks, tasks, environment.get("SLURM_TASKS_PER_NODE").value_or(""), ranks,
                        ranks, ranks);
    }
  } else if (const auto path = environment.get("PBS_NODEFILE")) {
    KOLO_ASSIGN(const std::string text, read_text(*path));
    const std::vector<Host> listed = hosts_by_lines(text);
    if (listed.empty()) {
      return KOLO_ERROR(kInvalidArgument, "PBS_NODEFILE={} names no host", *path);
    }
    if (ranks == 0) {
      return KOLO_ERROR(kInvalidArgument, "not every PBS says how many ranks to start: give -np");
    }
    int lines = 0;
    for (const Host& host : listed) lines += host.slots;
    // Some PBS repeat a host once per rank (mpiprocs). Others repeat it once per core; then the
    // numbers differ.
    if (lines == ranks) return listed;
    const int count = static_cast<int>(listed.size());
    for (int i = 0; i < count; ++i) {
      const int slots = ranks / count + (i < ranks % count ? 1 : 0);
      if (slots > 0) hosts.push_back({listed[static_cast<std::size_t>(i)].name, slots});
    }
  }
  return hosts;
}

Result<std::vector<Place>> place_ranks(const std::vector<Host>& hosts, int ranks, Mapping mapping) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (ranks == 0) ranks = slots;
  if (ranks > slots) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} ranks do not fit the {} slots of the hosts; give hosts with more slots, "
                      "as -H node1:{}",
                      ranks, slots, ranks);
  }
  std::vector<int> taken(hosts.size(), 0);
  std::vector<std::size_t> host_of;
  for (std::size_t h = 0; host_of.size() < static_cast<std::size_t>(ranks);) {
    if (taken[h] < hosts[h].slots) {
      ++taken[h];
      host_of.push_back(h);
      if (mapping == Mapping::kSlot) continue;
    }
    h = (h + 1) % hosts.size();
  }
  std::vector<Place> places;
  std::vector<int> local_ranks(hosts.size(), 0);
  for (const std::size_t h : host_of) {
    places.push_back({static_cast<int>(places.size()), hosts[h].name, local_ranks[h]++, taken[h],
                      hosts[h].is_here});
  }
  return places;
}

std::string this_host() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace kolo::run
