#include "tools/info/doctor.h"

#include "runtime/base/proc_access.h"
#include "runtime/base/resource_limits.h"
#include "runtime/base/unique_handle.h"
#include "runtime/topology/cpu_limit.h"
#include "runtime/topology/host.h"
#include "tools/info/folded.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <system_error>

namespace kolo::info {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kWindow = 16 * kMiB;  // KOLO_SHARED_MEMORY's default

std::string reason() { return std::generic_category().message(errno); }

Finding shared_memory() {
  const UniqueDescriptor memory(::memfd_create("kolo-info", MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.get(), kWindow) != 0) {
    return {false, "shared memory: no memfd: " + reason(),
            "kolo's windows need memfd_create(); a container's seccomp profile may forbid it"};
  }
  void* const mapped =
      ::mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    return {false,
            fmt::format("shared memory: {} MiB cannot be mapped: {}", kWindow / kMiB, reason()),
            "raise the memory limit, or lower KOLO_SHARED_MEMORY"};
  }
  ::munmap(mapped, kWindow);
  return {true, fmt::format("shared memory: {} MiB mapped", kWindow / kMiB)};
}

/// Good in either case: kolo uses what works.
Finding access_of_peers() {
  const std::string_view why = why_peers_cannot_open();
  if (why.empty()) return {true, "access: ranks of this host may open each other's memory"};
  return {true, fmt::format("access: {}; ranks that are each so share memory by names in /dev/shm, "
                            "and kolo::allocate() is private",
                            why)};
}

Finding ports() {
  const UniqueDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return {false, "ports: cannot listen at any: " + reason(), "see net.ipv4.ip_local_port_range"};
  }
  return {true, "ports: a free one was found"};
}

Finding own_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  addrinfo* raw = nullptr;
  if (::getaddrinfo(name.data(), nullptr, nullptr, &raw) != 0) {
    return {false, fmt::format("name: '{}' has no address", name.data()),
            "add it to /etc/hosts, or give kolo-run --address"};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, ::freeaddrinfo);
  std::string last;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text = {};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    last = text.data();
    if (!last.starts_with("127.") && last != "::1" && !last.starts_with("fe80:"))
      return {true, fmt::format("name: {} is {}", name.data(), last)};
  }
  const bool is_alone = is_initialized() && size() == local_size();
  return {
      is_alone, fmt::format("name: {} is {}, which no other host reaches", name.data(), last),
      "for jobs on several hosts: correct /etc/hosts, or give kolo-run --address or --interface"};
}

/// Only network cards need it, and UCX does without cards that cannot be used.
Finding locked_memory() {
  std::error_code unknown;
  const bool has_cards = std::filesystem::exists("/sys/class/infiniband", unknown);
  rlimit limit = {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {true, "locked memory: no limit (ulimit -l)"};
  return {!has_cards, fmt::format("locked memory: {} KiB (ulimit -l)", limit.rlim_cur >> 10),
          has_cards ? "RDMA registers memory: ulimit -l unlimited (limits.conf, or the scheduler's "
                      "prolog)"
                    : ""};
}

/// After init: a limit holds for all ranks of this host together if they share a container.
Finding processor_time() {
  const auto limit = cpu_limit();
  if (!limit) return {true, "processor time: no limit"};
  const std::string what =
      fmt::format("processor time: {:.1f} cores by the control group's limit", limit->cores);
  if (!is_initialized() || limit->cores >= local_size()) return {true, what};
  return {false, fmt::format("{}, for {} ranks", what, local_size()),
          "start fewer ranks here, or give the container more (docker run --cpus, "
          "resources.limits.cpu): ranks that have used it up stand still"};
}

/// Collective: one number from each rank.
std::vector<double> gather(double mine, const char* name) {
  std::vector<double> all(static_cast<std::size_t>(size()), 0.0);
  all[static_cast<std::size_t>(rank())] = mine;
  allreduce(all.data(), all.data(), {size()}, DataType::kFloat64,
            {.op = ReduceOp::kSum, .name = name});
  return all;
}

/// Collective: the lowest rank on this machine. Host names do not tell: containers of one machine
/// may have different names, those of several the same. The kernel's boot id does; the host name
/// only replaces it where /proc is closed.
int first_of_this_machine() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!std::getline(file, machine) || machine.empty()) machine = name.data();
  // A double holds 52 bits exactly.
  const auto mine = static_cast<double>(std::hash<std::string>()(machine) >> 12);
  const auto all = gather(mine, "kolo-info: machines");
  return static_cast<int>(std::find(all.begin(), all.end(), mine) - all.begin());
}

Finding clocks() {
  barrier();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto all = gather(std::chrono::duration<double>(now).count(), "kolo-info: clocks");
  const auto [first, last] = std::minmax_element(all.begin(), all.end());
  const double apart = *last - *first;
  if (apart < 1) return {true, fmt::format("clocks: within {:.3f} s", apart)};
  return {false,
          fmt::format("clocks: rank {}'s is {:.1f} s before rank {}'s", last - all.begin(), apart,
                      first - all.begin()),
          "let the hosts keep time by NTP: logs of ranks are hard to read else"};
}

Finding links() {
  const RuntimeInfo info = runtime_info();
  const auto text = [](const LinkInfo& link) {
    return link.latency_us == 0
               ? "none"
               : fmt::format("{:.1f} us, {:.1f} us a message of all at once, {:.2f} GB/s",
                             link.latency_us, link.crowd_us, link.gigabytes_per_second);
  };
  const std::string what =
      fmt::format("links: inside hosts {}; between hosts {}", text(info.inside), text(info.across));
  if (info.across.latency_us < 1000) return {true, what};
  return {false, what,
          "more than 1 ms between hosts: choose the faster network, KOLO_INTERFACE=eth1"};
}

/// Checks the hardware threads that the ranks of a machine may use together. Each rank reports its
/// own, because a launcher may have bound ranks to different threads.
Finding cores() {
  constexpr std::size_t kMost = 1024;
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<double> masks(ranks * kMost, 0.0);
  for (const int core : usable_cores()) {
    const auto index = static_cast<std::size_t>(core);
    if (index < kMost) masks[static_cast<std::size_t>(rank()) * kMost + index] = 1;
  }
  allreduce(masks.data(), masks.data(), {static_cast<std::int64_t>(masks.size())},
            DataType::kFloat64, {.op = ReduceOp::kSum, .name = "kolo-info: cores"});
  // A machine is identified by its lowest rank.
  const auto firsts = gather(static_cast<double>(first_of_this_machine()), "kolo-info: firsts");
  double least = static_cast<double>(kMost);
  std::size_t where = 0;
  for (std::size_t first = 0; first < ranks; ++first) {
    std::set<std::size_t> together;
    int members = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (firsts[r] != static_cast<double>(first)) continue;
      ++members;
      for (std::size_t core = 0; core < kMost; ++core) {
        if (masks[r * kMost + core] > 0) together.insert(core);
      }
    }
    if (members == 0 || static_cast<double>(together.size()) / members >= least) continue;
    least = static_cast<double>(together.size()) / members;
    where = first;
  }
  if (least >= 1) return {true, fmt::format("cores: at least {:.1f} a rank", least)};
  return {false, fmt::format("cores: {:.1f} a rank on the host of rank {}", least, where),
          "start fewer ranks there; ranks that share a core wait for each other"};
}

}  // namespace

std::vector<Finding> examine_host() {
  std::vector<Finding> findings = {shared_memory(), access_of_peers(), ports(), own_name(),
                                   processor_time()};
  for (const ResourceLimit& limit : resource_limits(Environment::of_process()))
    findings.push_back({limit.is_enough, limit.what, limit.is_enough ? "" : limit.remedy});
  findings.push_back(locked_memory());
  return findings;
}

std::vector<Finding> examine_job() { return {cores(), clocks(), links()}; }

namespace {

int number_of_bad(const std::vector<Finding>& findings) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [](const Finding& finding) { return !finding.good; }));
}

}  // namespace

int print_findings(const std::string& host, const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const bool has_remedy = !finding.remedy.empty();
    const char* const mark = !finding.good ? "!!" : has_remedy ? "--" : "ok";
    const std::string indent = host + ":      ";
    text += folded(fmt::format("{}: [{}] {}", host, mark, finding.what), indent) + "\n";
    if (has_remedy) text += folded(indent + "→ " + finding.remedy, indent + "  ") + "\n";
  }
  fmt::print("{}", text);  // at once: ranks of several hosts print
  return number_of_bad(findings);
}

int print_findings_json(const std::string& host, const std::vector<Finding>& findings) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"good", finding.good}, {"what", finding.what}});
    if (!finding.remedy.empty()) rows.back()["remedy"] = finding.remedy;
  }
  fmt::print("{}\n", nlohmann::json({{"host", host}, {"findings", std::move(rows)}}).dump());
  return number_of_bad(findings);
}

}  // namespace kolo::info
