#include "tools/simulate/options.h"

#include "tools/perf/numbers.h"
#include "tools/perf/problem.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace kolo::simulate {
namespace {

constexpr const char* kDescription =
    "Plays kolo's schedules on a described machine, in simulated time: how long each collective "
    "takes by which algorithm, what kolo would choose, and what would be best.";

constexpr const char* kFooter = R"(examples:
  kolo-simulate --hosts 4 --ranks-per-host 8          # all-reduces, 100 Gb/s cards
  kolo-simulate --hosts 2,8,32,128 --preset 400g -b 102M -e 102M
  kolo-simulate --hosts 4 --latency 30us --overhead 2us --bandwidth 0.117
  kolo-simulate broadcast allgather --hosts 16 -b 64K -e 64M -f 16
  kolo-simulate --hosts 1024 --algorithm ring,halving_doubling -b 1M -e 1M
  kolo-simulate --hosts 8 --slow-rank 3 --slow-factor 2 --jitter 0.1 --seed 7
  kolo-simulate --hosts 32 --hosts-per-switch 8 --oversubscription 4 -b 64M
  kolo-simulate --hosts 1 --ranks-per-host 64 --numa-nodes 8 --algorithm mapped
  kolo-simulate --step trace.0.json --hosts 1,8,64,512 --ranks-per-host 8
  kolo-simulate --start-up --hosts 1,64,4096 --ranks-per-host 8
  kolo-simulate --hosts 4 --json | jq '.rows[] | select(.best)'
  kolo-simulate --hosts 8,512 --json > s.json     # for tools/bench plot s.json --out s.svg

A message takes overhead + latency + bytes / bandwidth + overhead; the overheads
keep the cores of its two ranks busy. The ranks of a host share the bandwidth of
its card, in each direction. Sums and copies take a rank's core, and the host's
memory. Ranks are numbered host by host, one core each. The presets are assumed,
not measured. What is not modelled, and how well the rest predicts runs, is in
docs/scale.md.

size: of each rank; of allgather and reducescatter all ranks' parts together.
busbw: size / time times nccl-tests' factor of the collective. of best: the time
divided by the least of this size. price: by which kolo chooses all-reduces.
Where one host can stand for all others, only its ranks are played, which is
exact. Many ranks may then need a size at which all messages are equally long:
"played" names it.

--step takes the step of median length: when which gradients became ready, and
how long the rank computed. They are fused by kolo's rules and all-reduced one
operation after the other, each after an agreement of all hosts by a locked plan
(without one: negotiation_us). exposed: what of that comes after the last
gradient. efficiency: compute / (compute + exposed).

--start-up plays from the launcher's start until init() has returned on all
ranks, part by part as init() logs them (KOLO_LOG_LEVEL=info). Every part ends
with its last rank. sent: bytes of the store's answers. Times of cores are those
of one virtual machine.

The output of --json is one object: machine, and rows[]: hosts, ranks,
collective, algorithm, size, played (B), time_us, busbw_GBps, of_best, price_us
(null: none), chosen, best, steps, symmetry; or error instead of what follows
size. With --step: profile (gradients, bytes, compute_us), and rows[]: hosts,
ranks, operations, agreement_us, negotiation_us, communication_us, exposed_us,
step_us, efficiency; or error. With --start-up: rows[]: hosts, ranks, total_us, and
parts[]: name, us, store_us, sent (B).

exit status: 0; 1 where something could not be played; 2 after wrong options.)";

constexpr int kMostRanks = 32768;

using Kinds = std::map<std::string, OperationKind>;
const Kinds kKinds = {{"allreduce", OperationKind::kAllreduce},
                      {"broadcast", OperationKind::kBroadcast},
                      {"allgather", OperationKind::kAllgather},
                      {"reducescatter", OperationKind::kReduceScatter},
                      {"alltoall", OperationKind::kAlltoall}};

/// "5", "5us", "800ns", "0.2ms": the text becomes microseconds.
CLI::Validator as_microseconds() {
  const auto replace = [](std::string& text) -> std::string {
    const std::string given = text;
    double unit = 1;
    for (const auto& [name, us] : {std::pair("ns", 1e-3), {"us", 1.0}, {"ms", 1e3}}) {
      if (!text.ends_with(name)) continue;
      text.resize(text.size() - 2);
      unit = us;
      break;
    }
    if (!perf::number_within(0, 1e6)(text).empty())
      return fmt::format("'{}' is no time: write 5us, 800ns or 0.2ms", given);
    text = fmt::format("{}", std::stod(text) * unit);
    return {};
  };
  return {replace, "TIME"};
}

struct Texts {
  std::vector<std::string> kinds = {"allreduce"};
  std::vector<std::string> algorithms;
  std::string preset = "100g";
  std::string type = "float32";
  std::uint64_t min_bytes = 1 << 10;
  std::uint64_t max_bytes = 64 << 20;
  double factor = 8;
  std::optional<double> latency, overhead, bandwidth;
  std::uint64_t burst = 0;
};

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm algorithm : kAlgorithms) names.emplace_back(to_string(algorithm));
  return names;
}

void add_machine(CLI::App& app, Texts& texts, Options& options) {
  Machine& machine = options.machine;
  const auto rate = perf::number_within(1e-6, 1e6);
  app.add_option("--hosts", options.hosts, "hosts; several numbers: one machine after the other")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostRanks))
      ->default_val(std::vector<int>{2});
  app.add_option("--ranks-per-host", machine.ranks_per_host, "ranks on each host")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--preset", texts.preset, "network cards: 4us, 0.5us, and 12.5 or 50 GB/s")
      ->check(CLI::IsMember(preset_names()))
      ->capture_default_str();
  app.add_option("--latency", texts.latency, "of an empty message between hosts, on its way")
      ->transform(as_microseconds());
  app.add_option("--overhead", texts.overhead, "of each message, at each of its two ranks")
      ->transform(as_microseconds());
  app.add_option("--bandwidth", texts.bandwidth, "GB/s of a host's card, in each direction")
      ->check(rate);
  app.add_option("--burst", texts.burst,
                 "bytes that a rested card lets through at once: a shaper's token bucket")
      ->transform(perf::as_bytes(0))
      ->capture_default_str();
  CLI::Option* const per_switch = app.add_option("--hosts-per-switch", machine.hosts_per_switch,
                                                 "hosts joined by one switch; 0: all of them")
                                      ->check(CLI::Range(0, kMostRanks))
                                      ->capture_default_str();
  app.add_option("--oversubscription", machine.oversubscription,
                 "how many times the bandwidth of a switch's link up, and down, its hosts have")
      ->check(perf::number_within(1, 1e6))
      ->needs(per_switch)
      ->capture_default_str();
  app.add_option("--inside-latency", machine.inside.latency_us, "as --latency, inside a host")
      ->transform(as_microseconds())
      ->capture_default_str();
  app.add_option("--inside-overhead", machine.inside.overhead_us, "as --overhead, inside a host")
      ->transform(as_microseconds())
      ->capture_default_str();
  app.add_option("--inside-bandwidth", machine.inside.gigabytes_per_second,
                 "GB/s of messages inside a host, of each rank")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--core", machine.core_gigabytes_per_second,
                 "GB/s that one rank's sums and copies read and write")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--memory", machine.memory_gigabytes_per_second, "the same of a whole host")
      ->check(rate)
      ->capture_default_str();
  CLI::Option* const nodes = app.add_option("--numa-nodes", machine.numa_nodes,
                                            "NUMA nodes of a host: equal shares of its ranks and "
                                            "its memory")
                                 ->check(CLI::Range(1, 256))
                                 ->capture_default_str();
  app.add_option("--far", machine.far_gigabytes_per_second,
                 "GB/s that a node's ranks together read and write in other nodes' memory")
      ->check(rate)
      ->needs(nodes)
      ->capture_default_str();
  app.add_flag("--flat", machine.is_flat, "kolo ignores the nodes (KOLO_NUMA_NODES=1)")
      ->needs(nodes);
  app.add_option("--window", machine.window_bytes,
                 "bytes of shared memory that one operation has on each rank; 0: none")
      ->transform(perf::as_bytes(0))
      ->capture_default_str();
  app.add_option("--slow-rank", machine.slow_rank, "a rank with a slower core")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slow-factor", machine.slow_factor, "how many times as long its core takes")
      ->check(perf::number_within(1, 1e6))
      ->capture_default_str();
  app.add_option("--jitter", machine.jitter,
                 "every latency and time of a core grows by a random share up to this")
      ->check(perf::number_within(0, 100))
      ->capture_default_str();
  app.add_option("--seed", machine.seed, "of --jitter")->capture_default_str();
}

void add_calls(CLI::App& app, Texts& texts, Options& options) {
  app.add_option("collective", texts.kinds, "what to play; several")
      ->check(CLI::IsMember(kKinds))
      ->capture_default_str();
  app.add_option("-b,--minbytes", texts.min_bytes, "smallest size, bytes (suffix K, M, G, T)")
      ->transform(perf::as_bytes(1))
      ->capture_default_str();
  app.add_option("-e,--maxbytes", texts.max_bytes, "largest size, bytes (suffix K, M, G, T)")
      ->transform(perf::as_bytes(1))
      ->capture_default_str();
  app.add_option("-f,--stepfactor", texts.factor, "factor between sizes")
      ->check(perf::number_within(1.01, 1e6))
      ->capture_default_str();
  app.add_option("-d,--datatype", texts.type, "element type")
      ->check(CLI::IsMember({"bfloat16", "float16", "float32", "float64"}))
      ->capture_default_str();
  app.add_option("--algorithm", texts.algorithms, "all-reduces by these algorithms only")
      ->delimiter(',')
      ->check(CLI::IsMember(algorithm_names()));
  app.add_option("--step", options.step,
                 "a training step, of a rank's timeline (KOLO_TIMELINE), instead of collectives")
      ->check(CLI::ExistingFile)
      ->excludes("collective", "-b", "-e", "-f", "-d", "--algorithm");
  app.add_flag("--json", options.json, "print JSON");
}

void add_start_up(CLI::App& app, Options& options) {
  const auto start_up =
      app.add_flag("--start-up", options.start_up, "start-up, instead of collectives")
          ->excludes("collective", "-b", "-e", "-f", "-d", "--algorithm", "--step")
          ->excludes("--burst", "--inside-bandwidth", "--core", "--memory", "--window")
          ->excludes("--hosts-per-switch", "--oversubscription", "--numa-nodes")
          ->excludes("--slow-rank", "--slow-factor", "--jitter", "--seed");
  app.add_option("--cores", options.cores, "of each host, for --start-up; 0: one for each rank")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->needs(start_up);
}

void refuse(const Options& options, const Texts& texts) {
  if (texts.min_bytes > texts.max_bytes)
    throw CLI::ValidationError("-b", "is above -e: there is no such size");
  for (const int hosts : options.hosts) {
    Machine machine = options.machine;
    machine.hosts = hosts;
    if (machine.slow_rank >= machine.ranks())
      throw CLI::ValidationError("--slow-rank",
                                 fmt::format("{} hosts of {} have no rank {}", hosts,
                                             machine.ranks_per_host, machine.slow_rank));
    if (machine.ranks() > kMostRanks)
      throw CLI::ValidationError("--hosts", fmt::format("{} hosts of {} are more than {} ranks",
                                                        hosts, machine.ranks_per_host, kMostRanks));
    if (machine.numa_nodes > machine.ranks_per_host)
      throw CLI::ValidationError("--numa-nodes",
                                 fmt::format("{} ranks a host cannot lie on {} nodes",
                                             machine.ranks_per_host, machine.numa_nodes));
    if (machine.ranks() < 2)
      throw CLI::ValidationError("--hosts", "one host of one rank has nobody to send to");
    const auto apply = algorithms_of(machine);
    for (const Algorithm algorithm : options.algorithms)
      if (std::find(apply.begin(), apply.end(), algorithm) == apply.end())
        throw CLI::ValidationError(
            "--algorithm", fmt::format("{} does not apply to {} hosts of {} ranks",
                                       to_string(algorithm), hosts, machine.ranks_per_host));
  }
}

}  // namespace

std::string_view word_of(OperationKind kind) {
  for (const auto& [word, value] : kKinds)
    if (value == kind) return word;
  return "";
}

std::optional<Options> parse(int argc, char** argv, int* exit_code) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "kolo-simulate");
  app.footer(kFooter);
  app.set_version_flag("--version", "kolo " + version());
  add_calls(app, texts, options);
  add_machine(app, texts, options);
  add_start_up(app, options);
  try {
    app.parse(argc, argv);
    for (const std::string& name : texts.algorithms)
      options.algorithms.push_back(*algorithm_of(name));
    refuse(options, texts);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  for (const Preset& preset : kPresets)
    if (preset.name == texts.preset) options.machine.across = preset.across;
  Link& across = options.machine.across;
  across.latency_us = texts.latency.value_or(across.latency_us);
  across.overhead_us = texts.overhead.value_or(across.overhead_us);
  across.gigabytes_per_second = texts.bandwidth.value_or(across.gigabytes_per_second);
  across.burst_bytes = texts.burst;
  for (const std::string& kind : texts.kinds) options.kinds.push_back(kKinds.at(kind));
  options.type = perf::types_by_name().at(texts.type);
  for (auto size = static_cast<double>(texts.min_bytes);
       size <= static_cast<double>(texts.max_bytes); size *= texts.factor)
    options.sizes.push_back(static_cast<std::uint64_t>(size));
  return options;
}

}  // namespace kolo::simulate
