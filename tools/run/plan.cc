#include "tools/run/plan.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/local_ranks.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/secret_file.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/store_wire.h"
#include "runtime/topology/cpu_limit.h"
#include "runtime/topology/host.h"
#include "tools/run/binding.h"
#include "tools/run/discovery.h"
#include "tools/run/read_text.h"
#include "tools/run/same_host.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

namespace kolo::run {
namespace {

constexpr int kDefaultPort = 29500;       // torch.distributed's
constexpr int kDefaultInitTimeout = 300;  // KOLO_INIT_TIMEOUT's
// Time that ranks of an elastic job wait longer for others than kolo-run does, so that its reason
// is the first that is told.
constexpr std::chrono::seconds kBeforeRanksGiveUp(10);

Result<std::vector<Host>> find_hosts(const Options& options, const Roster::Limits& limits,
                                     const Environment& environment) {
  if (limits.finds_hosts) {
    return await_hosts(options.elastic.discovery, std::max(options.ranks, limits.least),
                       limits.wait);
  }
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  if (!options.hostfile.empty()) {
    KOLO_ASSIGN(const std::string text, read_text(options.hostfile));
    return parse_hostfile(text);
  }
  KOLO_ASSIGN(auto hosts, allocated_hosts(environment, options.ranks));
  if (hosts.empty() && options.ranks == 0) {
    return KOLO_ERROR(kInvalidArgument, "give the number of ranks: -np 4");
  }
  if (hosts.empty()) hosts.push_back({this_host(), std::max(options.ranks, limits.most)});
  return hosts;
}

/// MASTER_PORT, where node 0 listens; the next port is for the ranks.
Result<int> named_port(const Environment& environment) {
  const auto text = environment.get("MASTER_PORT");
  if (!text || text->empty()) return kDefaultPort;
  const auto port = parse_count(*text);
  if (port && *port >= 1 && *port < 65535) return *port;
  return KOLO_ERROR(kInvalidArgument,
                    "MASTER_PORT={} is no port for --nnodes: expected a number from 1 to 65534, as "
                    "the next one is used, too",
                    *text);
}

/// Removes the user's name, which ssh takes before the host.
std::string address_of(const std::string& host) { return host.substr(host.rfind('@') + 1); }

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Result<int> ranks_of_node(const Options& options, const Environment& environment) {
  const std::string& word = options.ranks_per_node;
  const int cores = cores_within_limit(static_cast<int>(usable_cores().size()));
  const int gpus = visible_devices(environment);
  if (word == "cpu" || (word == "auto" && gpus == 0)) return cores;
  if (word == "auto" || word == "gpu") {
    if (gpus > 0) return gpus;
    return KOLO_ERROR(kInvalidArgument, "--nproc-per-node gpu: this host shows no GPU");
  }
  const auto count = parse_count(word);
  if (count && *count > 0) return *count;
  return KOLO_ERROR(kInvalidArgument, "--nproc-per-node {}: expected a number, cpu, gpu or auto",
                    word);
}

/// The value that ranks would find in `name`: what -x or a configuration file sets, else kolo-run's
/// own.
std::string ranks_variable(const Options& options, const Environment& environment,
                           const std::string& name) {
  const auto set =
      std::find_if(options.set.rbegin(), options.set.rend(),
                   [&](const std::string& item) { return item.starts_with(name + "="); });
  if (set != options.set.rend()) return set->substr(name.size() + 1);
  return environment.get(name).value_or("");
}

/// KOLO_INIT_TIMEOUT of the ranks, in seconds.
int init_timeout(const Options& options, const Environment& environment) {
  return parse_count(ranks_variable(options, environment, "KOLO_INIT_TIMEOUT"))
      .value_or(kDefaultInitTimeout);
}

/// Empty if none is given.
Result<std::string> secret_of(const Options& options, const Environment& environment) {
  if (!options.secret_file.empty()) return read_secret_file(options.secret_file);
  return secret_or_file(ranks_variable(options, environment, "KOLO_SECRET"),
                        ranks_variable(options, environment, "KOLO_SECRET_FILE"));
}

/// The given secret, else a new one.
Result<std::string> secret_or_new(const Options& options, const Environment& environment) {
  KOLO_ASSIGN(std::string secret, secret_of(options, environment));
  if (!secret.empty()) return secret;
  KOLO_ASSIGN(const std::string bytes, random_bytes(16));
  return to_hex(bytes);
}

/// The limits of an elastic job before its hosts are known.
Roster::Limits limits_of(const Options& options, const Environment& environment) {
  Roster::Limits limits = options.elastic.limits;
  limits.finds_hosts = !options.elastic.discovery.empty();
  limits.mapping = options.mapping;
  if (limits.wait.count() == 0)
    limits.wait = std::chrono::seconds(init_timeout(options, environment));
  return limits;
}

/// Ranks that wait for the next world wait no less than kolo-run does.
void lengthen_init(const Options& options, const Environment& environment, Plan& plan) {
  const auto wait = plan.elastic.limits.wait + kBeforeRanksGiveUp;
  if (wait > std::chrono::seconds(init_timeout(options, environment)))
    plan.job.set.push_back(fmt::format("KOLO_INIT_TIMEOUT={}", wait.count()));
}

Status check_least(const Plan& plan) {
  if (plan.elastic.limits.least <= plan.job.size) return {};
  return KOLO_ERROR(kInvalidArgument, "--min-np {} is more than the {} ranks of the job",
                    plan.elastic.limits.least, plan.job.size);
}

/// The hosts of an elastic job are its nodes, in their order.
Status plan_elastic_nodes(const Options& options, const Environment& environment, Plan& plan) {
  plan.job.is_elastic = true;
  plan.elastic = options.elastic;
  plan.elastic.limits = limits_of(options, environment);
  plan.elastic.limits.first = plan.elastic.limits.most = plan.job.size;
  KOLO_TRY(check_least(plan));
  lengthen_init(options, environment, plan);
  for (Place& place : plan.places) place.process = place.rank;
  const int each = plan.places.front().local_size;
  const Host own = plan.hosts.front();
  plan.hosts.clear();
  for (int node = 0; node < options.nodes; ++node) {
    if (node == options.node_rank) {
      plan.hosts.push_back(own);
      continue;
    }
    plan.hosts.push_back({fmt::format("node {}", node), each, false});
    for (int local = 0; local < each; ++local) {
      const int rank = node * each + local;
      plan.elastic.others.push_back({rank, plan.hosts.back().name, local, each, false, rank});
    }
  }
  return {};
}

/// Plans one kolo-run on each node: this node's ranks, and node 0's store.
Status plan_node(const Options& options, const Environment& environment, Plan& plan) {
  KOLO_ASSIGN(const int here, ranks_of_node(options, environment));
  if (here > kMostRanks / options.nodes) {
    return KOLO_ERROR(kInvalidArgument, "{} ranks on each of {} nodes: a job has at most {} ranks",
                      here, options.nodes, kMostRanks);
  }
  const std::string own = this_host();
  for (int local = 0; local < here; ++local) {
    plan.places.push_back({options.node_rank * here + local, own, local, here, true});
  }
  plan.hosts = {{own, here, true}};
  plan.job.size = here * options.nodes;
  const std::string given = !options.master_addr.empty()
                                ? options.master_addr
                                : environment.get("MASTER_ADDR").value_or("");
  if (options.nodes == 1) {
    // As torchrun does: MASTER_ADDR counts only among several nodes, because another job may have
    // left it.
    plan.job.store = options.master_addr.empty() ? "127.0.0.1" : options.master_addr;
    plan.listen_host = plan.job.store;
    plan.listen_port = options.master_port;
    KOLO_ASSIGN(plan.job.secret, secret_or_new(options, environment));
    plan.job.master_port = free_port();
  } else {
    if (given.empty()) {
      return KOLO_ERROR(kInvalidArgument,
                        "--nnodes {}: give --master-addr, node 0's name or address", options.nodes);
    }
    plan.serves = options.node_rank == 0;
    plan.job.store = given;
    plan.listen_host = given;
    plan.listen_port = options.master_port;
    if (plan.listen_port == 0) {
      KOLO_ASSIGN(plan.listen_port, named_port(environment));
    }
    // The other nodes would not know a secret that this kolo-run makes.
    KOLO_ASSIGN(plan.job.secret, secret_of(options, environment));
    if (plan.job.secret.empty()) {
      plan.warnings.push_back(fmt::format(
          "{} nodes meet without a secret, so that whoever reaches {} may join; give all nodes the "
          "same KOLO_SECRET, or a --secret-file",
          options.nodes, to_text(Endpoint{given, static_cast<std::uint16_t>(plan.listen_port)})));
    }
    plan.job.master_port = plan.listen_port + 1;
  }
  plan.job.master_addr = plan.job.store;
  plan.nodes = options.nodes;
  plan.node = options.node_rank;
  if (options.elastic.limits.least > 0) return plan_elastic_nodes(options, environment, plan);
  return {};
}

/// Takes the first processes of an elastic job, and completes its limits.
Status place_first(const Options& options, const Environment& environment, Plan& plan) {
  Roster::Limits& limits = plan.elastic.limits;
  int slots = 0;
  for (const Host& host : plan.hosts) slots += host.slots;
  const int all = limits.most > 0 ? std::min(slots, limits.most) : slots;
  limits.first = options.ranks > 0 ? options.ranks : all;
  if (limits.most > limits.first && slots == limits.first && !limits.finds_hosts) {
    return KOLO_ERROR(kInvalidArgument,
                      "--max-np {} has no effect: the hosts have {} slots, one for each rank that "
                      "the job begins with; give hosts with more slots, as -H node1:{}, or a "
                      "program that lists hosts that come later (--host-discovery)",
                      limits.most, slots, limits.most);
  }
  if (limits.most == 0) limits.most = limits.finds_hosts ? kMostRanks : limits.first;
  KOLO_ASSIGN(plan.places, place_ranks(plan.hosts, limits.first, options.mapping));
  for (Place& place : plan.places) {
    place.process = place.rank;
    if (limits.most == limits.first) continue;
    // The others of the host may come later, and have their share of its cores.
    const auto host =
        std::find_if(plan.hosts.begin(), plan.hosts.end(),
                     [&](const Host& candidate) { return candidate.name == place.host; });
    place.local_size = std::min(host->slots, limits.most);
  }
  lengthen_init(options, environment, plan);
  return {};
}

Status plan_job(const Options& options, const Environment& environment, Plan& plan) {
  plan.job.is_elastic = options.elastic.limits.least > 0;
  plan.elastic = options.elastic;
  plan.elastic.limits = limits_of(options, environment);
  KOLO_ASSIGN(plan.hosts, find_hosts(options, plan.elastic.limits, environment));
  const bool is_foreign = options.is_foreign();
  const bool is_listed =
      !options.hosts.empty() || !options.hostfile.empty() || plan.elastic.limits.finds_hosts;
  // Other launchers, and agents other than ssh, may have their own names for hosts.
  plan.elastic.by_ssh = !is_foreign && is_ssh(plan.job.agent);
  plan.hosts = known_hosts(std::move(plan.hosts), is_listed && plan.elastic.by_ssh, plan.warnings);
  if (plan.job.is_elastic) {
    KOLO_TRY(place_first(options, environment, plan));
  } else {
    KOLO_ASSIGN(plan.places, place_ranks(plan.hosts, options.ranks, options.mapping));
  }
  const auto foreign = std::find_if(plan.places.begin(), plan.places.end(),
                                    [](const Place& p) { return !p.is_here; });
  // An elastic job may come to further hosts.
  const bool stays_here =
      !plan.job.is_elastic || (!plan.elastic.limits.finds_hosts &&
                               std::all_of(plan.hosts.begin(), plan.hosts.end(),
                                           [](const Host& host) { return host.is_here; }));
  const bool is_local = foreign == plan.places.end() && stays_here;
  if (options.launcher == "local" && foreign != plan.places.end()) {
    return KOLO_ERROR(
        kInvalidArgument,
        "--launcher local starts ranks on this host alone, but {} is another one; use "
        "ssh, srun or mpirun",
        foreign->host);
  }
  const auto v6 = std::find_if(plan.places.begin(), plan.places.end(),
                               [](const Place& p) { return is_v6_address(p.host); });
  if (v6 != plan.places.end() && is_foreign) {
    return KOLO_ERROR(kInvalidArgument,
                      "--launcher {} takes no IPv6 address, as {}, for a host; give the hosts' "
                      "names, or take ssh",
                      options.launcher, v6->host);
  }
  plan.job.size = static_cast<int>(plan.places.size());
  KOLO_TRY(check_least(plan));
  KOLO_ASSIGN(plan.job.secret, secret_or_new(options, environment));
  std::string own = options.address.empty() ? this_host() : options.address;
  if (!options.interface.empty() && options.address.empty()) {
    KOLO_ASSIGN(own, address_of_interface(options.interface));
    if (!is_local && own.starts_with("fe80:")) {
      return KOLO_ERROR(kInvalidArgument,
                        "--interface {}: all it has is {}, which other hosts name differently; "
                        "give --address",
                        options.interface, own);
    }
  }
  plan.job.store = is_local && options.address.empty() ? "127.0.0.1" : own;
  // Another host may know this one by a name that this host does not know, so listen at all
  // addresses. If the user has chosen a network, listen at that one only.
  if (plan.job.store == "127.0.0.1" || !options.interface.empty())
    plan.listen_host = plan.job.store;
  plan.listen_port = options.master_port;
  const bool rank_0_is_here = plan.places.front().is_here;
  plan.job.master_addr = rank_0_is_here ? plan.job.store : address_of(plan.places.front().host);
  plan.job.master_port = free_port();
  return {};
}

/// Refuses to be started several times by a launcher: each kolo-run would start a whole job.
Status check_alone(const Environment& environment) {
  KOLO_ASSIGN(const auto hint, find_launcher(environment));
  if (!hint || !hint->is_mpi || hint->size <= 1) return {};
  return KOLO_ERROR(kInvalidArgument,
                    "this kolo-run is one of {} that {} has started ({}={}), and each would start "
                    "a whole job; start the program itself by that launcher, or kolo-run without "
                    "it; for one kolo-run on each node give --nnodes; if separate jobs are meant: "
                    "env -u {} kolo-run …",
                    hint->size, hint->launcher, hint->variable, hint->size, hint->variable);
}

/// Sets the devices that ranks see, and warns if ranks must share a device.
Status plan_devices(const Options& options, const Environment& environment, Plan& plan) {
  // If the user has not named devices, the ranks may be meant to use none.
  int devices = environment.get("CUDA_VISIBLE_DEVICES") ? visible_devices(environment) : 0;
  if (!options.gpu_ids.empty()) {
    const Environment chosen({{"CUDA_VISIBLE_DEVICES", options.gpu_ids}});
    devices = visible_devices(chosen);
    const auto items = std::count(options.gpu_ids.begin(), options.gpu_ids.end(), ',') + 1;
    std::istringstream list(options.gpu_ids);
    std::set<std::string> different;
    for (std::string item; std::getline(list, item, ',');) different.insert(item);
    if (devices != items || static_cast<int>(different.size()) != devices) {
      return KOLO_ERROR(kInvalidArgument,
                        "--gpu-ids {}: expected different devices by their numbers, or by names "
                        "that nvidia-smi -L shows, with commas between them, as 0,1,3",
                        options.gpu_ids);
    }
    plan.job.set.push_back("CUDA_VISIBLE_DEVICES=" + options.gpu_ids);
  }
  for (const Place& place : plan.places) {
    if (devices == 0 || place.local_size <= devices || place.local_rank > 0) continue;
    plan.warnings.push_back(
        fmt::format("{} ranks on {} share {} device{}; start fewer ranks there, or name more "
                    "devices (--gpu-ids, CUDA_VISIBLE_DEVICES); without NVIDIA MPS "
                    "(nvidia-cuda-mps-control -d) they run by turns",
                    place.local_size, place.host, devices, devices == 1 ? "" : "s"));
  }
  return {};
}

}  // namespace

Status check_number(int here) {
  constexpr const char* kLimits[] = {"kernel.pid_max", "kernel.threads-max"};
  for (const std::string limit : kLimits) {
    int most = 0;
    std::ifstream file("/proc/sys/kernel/" + limit.substr(limit.find('.') + 1));
    if (!(file >> most) || here < most) continue;
    return KOLO_ERROR(kInvalidArgument,
                      "{} ranks on this host, {}, which runs at most {} processes ({}); start "
                      "fewer ranks there",
                      here, this_host(), most, limit);
  }
  return {};
}

int free_port() {
  // The kernel gives connections ports from 32768 on (ip_local_port_range). One of those may be
  // taken by the time that rank 0 listens, or be taken on rank 0's host.
  std::uniform_int_distribution<int> below(16384, 32767);
  std::random_device dice;
  for (int tries = 0; tries < 16; ++tries) {
    const auto port = static_cast<std::uint16_t>(below(dice));
    if (listen_at({"127.0.0.1", port}).ok()) return port;
  }
  const auto listener = listen_at({"127.0.0.1", 0});
  return listener.ok() ? listener->port : kDefaultPort;
}

Result<Plan> make_plan(const Options& options, const Environment& environment) {
  if (options.nodes == 1) KOLO_TRY(check_alone(environment));
  Plan plan;
  plan.job.program = options.program;
  plan.job.set = options.set;
  if (!options.interface.empty()) plan.job.set.push_back("KOLO_INTERFACE=" + options.interface);
  if (!options.agent.empty()) plan.job.agent = split_words(options.agent);
  std::array<char, 4096> directory = {};
  if (::getcwd(directory.data(), directory.size()) != nullptr)
    plan.job.directory = directory.data();
  for (const std::string& item : options.set) {
    if (item.find('=') != std::string::npos || environment.get(item)) continue;
    plan.warnings.push_back(fmt::format("-x {}: it is not set here, so no rank gets it", item));
  }
  KOLO_TRY(options.ranks_per_node.empty() ? plan_job(options, environment, plan)
                                          : plan_node(options, environment, plan));
  plan.time_to_meet =
      std::chrono::seconds(std::max(kDefaultInitTimeout, init_timeout(options, environment)));
  plan.job.bind = options.bind;
  std::error_code unknown;
  plan.job.self = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  return plan;
}

Status complete_plan(const Options& options, const Environment& environment, Plan& plan) {
  KOLO_TRY(plan_devices(options, environment, plan));
  const auto here = std::find_if(plan.places.begin(), plan.places.end(),
                                 [](const Place& place) { return place.is_here; });
  if (here == plan.places.end()) return {};
  KOLO_TRY(check_number(here->local_size));
  const auto cores = usable_cores();
  plan.job.threads = threads_of_rank(here->local_size, cores);
  KOLO_TRY(cores_of_rank(options.bind, 0, here->local_size, cores));
  return {};
}

}  // namespace kolo::run
