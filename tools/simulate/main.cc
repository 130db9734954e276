// kolo-simulate: how long collectives take on a machine that is not at hand. One process, one
// thread, at most 4 GiB.
#include "tools/perf/problem.h"
#include "tools/simulate/collective.h"
#include "tools/simulate/options.h"
#include "tools/simulate/start_up.h"
#include "tools/simulate/training_step.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace kolo;
using namespace kolo::simulate;

constexpr rlim_t kMostMemory = rlim_t{4} << 30;

/// A collective by one algorithm: what was asked, and what came of it.
struct Row {
  Call call;
  Result<Time> time;
  bool chosen = false;
};

/// The time of a collective or a step.
template <class What>
auto within_memory(const Machine& machine, const What& what) -> decltype(time_of(machine, what)) {
  try {
    return time_of(machine, what);
  } catch (const std::bad_alloc&) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("the schedules of {} ranks need more than {} GiB: give fewer ranks, or "
                    "fewer bytes",
                    machine.ranks(), kMostMemory >> 30)};
  }
}

/// One size of one collective, by every algorithm.
std::vector<Row> rows_of(const Machine& machine, const Options& options, Call call) {
  std::vector<Row> rows;
  if (call.kind != OperationKind::kAllreduce) {
    rows.push_back({call, within_memory(machine, call), true});
    return rows;
  }
  const Algorithm choice = choice_of(machine, call);
  for (const Algorithm algorithm :
       options.algorithms.empty() ? algorithms_of(machine) : options.algorithms) {
    call.algorithm = algorithm;
    rows.push_back({call, within_memory(machine, call), algorithm == choice});
  }
  return rows;
}

double least_of(const std::vector<Row>& rows) {
  double least = 0;
  for (const Row& row : rows)
    if (row.time.ok() && (least == 0 || row.time->us < least)) least = row.time->us;
  return least;
}

nlohmann::json to_json(const Machine& machine, const Row& row, double least) {
  nlohmann::json json = {{"hosts", machine.hosts},
                         {"ranks", machine.ranks()},
                         {"collective", word_of(row.call.kind)},
                         {"size", row.call.bytes},
                         {"chosen", row.chosen}};
  if (row.call.algorithm) json["algorithm"] = to_string(*row.call.algorithm);
  if (!row.time.ok()) {
    json["error"] = row.time.error().message;
    return json;
  }
  const Time& time = *row.time;
  if (!row.call.algorithm) json["algorithm"] = time.schedule;
  const double price = row.call.algorithm ? price_of(machine, row.call, *row.call.algorithm) : 0;
  json["played"] = time.bytes;
  json["time_us"] = time.us;
  const auto collective = perf::collective_of(word_of(row.call.kind)).value();
  json["busbw_GBps"] = static_cast<double>(time.bytes) / time.us * 1e-3 *
                       perf::bus_factor(collective, machine.ranks());
  json["of_best"] = time.us / least;
  json["best"] = time.us == least;
  json["price_us"] = price > 0 ? nlohmann::json(price) : nlohmann::json();
  json["steps"] = time.steps;
  json["symmetry"] = to_string(time.symmetry);
  return json;
}

nlohmann::json to_json(const Machine& machine) {
  const auto link = [](const Link& of) {
    return nlohmann::json{{"latency_us", of.latency_us},
                          {"overhead_us", of.overhead_us},
                          {"GBps", of.gigabytes_per_second},
                          {"burst_bytes", of.burst_bytes}};
  };
  return {{"ranks_per_host", machine.ranks_per_host},
          {"across", link(machine.across)},
          {"hosts_per_switch", machine.hosts_per_switch},
          {"oversubscription", machine.oversubscription},
          {"inside", link(machine.inside)},
          {"core_GBps", machine.core_gigabytes_per_second},
          {"memory_GBps", machine.memory_gigabytes_per_second},
          {"numa_nodes", machine.numa_nodes},
          {"far_GBps", machine.far_gigabytes_per_second},
          {"flat", machine.is_flat},
          {"window_bytes", machine.window_bytes},
          {"slow_rank", machine.slow_rank},
          {"slow_factor", machine.slow_factor},
          {"jitter", machine.jitter},
          {"seed", machine.seed}};
}

void print_head(const Machine& machine) {
  fmt::print("between hosts {:g} us, overhead {:g} us, {:g} GB/s; {} ranks a host\n",
             machine.across.latency_us, machine.across.overhead_us,
             machine.across.gigabytes_per_second, machine.ranks_per_host);
  fmt::print("{:>5} {:>6} {:>13} {:>11} {:>27} {:>12} {:>10} {:>8} {:>12}\n", "hosts", "ranks",
             "collective", "size", "algorithm", "time_us", "busbw_GBps", "of best", "price_us");
}

void print_row(const nlohmann::json& row) {
  const auto text = [&](const char* name) { return row.value(name, std::string()); };
  fmt::print("{:>5} {:>6} {:>13} {:>11} {:>27} ", row["hosts"].get<int>(), row["ranks"].get<int>(),
             text("collective"), row["size"].get<std::uint64_t>(), text("algorithm"));
  if (row.contains("error")) {
    fmt::print("{}\n", text("error"));
    return;
  }
  const std::string price =
      row["price_us"].is_null() ? "-" : fmt::format("{:.1f}", row["price_us"].get<double>());
  std::string notes;
  if (row["chosen"].get<bool>()) notes += " chosen";
  if (row["best"].get<bool>()) notes += " best";
  if (row["played"] != row["size"])
    notes += fmt::format(" (played {})", row["played"].get<std::uint64_t>());
  fmt::print("{:>12.1f} {:>10.3f} {:>8.2f} {:>12}{}\n", row["time_us"].get<double>(),
             row["busbw_GBps"].get<double>(), row["of_best"].get<double>(), price, notes);
}

nlohmann::json to_json(const Machine& machine, const Profile& profile,
                       const Result<StepTime>& time) {
  nlohmann::json json = {{"hosts", machine.hosts}, {"ranks", machine.ranks()}};
  if (!time.ok()) {
    json["error"] = time.error().message;
    return json;
  }
  const double step = profile.compute_us + time->exposed_us;
  json["operations"] = time->operations;
  json["agreement_us"] = agreement_us(machine);
  json["negotiation_us"] = negotiation_us(machine);
  json["communication_us"] = time->communication_us;
  json["exposed_us"] = time->exposed_us;
  json["step_us"] = step;
  json["efficiency"] = profile.compute_us / step;
  return json;
}

void print_step(const nlohmann::json& row) {
  fmt::print("{:>5} {:>6} ", row["hosts"].get<int>(), row["ranks"].get<int>());
  if (row.contains("error")) {
    fmt::print("{}\n", row["error"].get<std::string>());
    return;
  }
  const auto number = [&](const char* name) { return row[name].get<double>(); };
  fmt::print("{:>10} {:>12.1f} {:>14.2f} {:>10.2f} {:>9.2f} {:>10.3f}\n",
             row["operations"].get<std::size_t>(), number("agreement_us"),
             number("communication_us") * 1e-3, number("exposed_us") * 1e-3,
             number("step_us") * 1e-3, number("efficiency"));
}

int run_step(const Options& options) {
  const auto profile = read_profile(*options.step);
  if (!profile.ok()) {
    fmt::print(stderr, "kolo-simulate: {}\n", profile.error().message);
    return 2;
  }
  std::uint64_t bytes = 0;
  for (const Gradient& gradient : profile->gradients) bytes += gradient.bytes;
  nlohmann::json report = {{"machine", to_json(options.machine)},
                           {"profile",
                            {{"gradients", profile->gradients.size()},
                             {"bytes", bytes},
                             {"compute_us", profile->compute_us}}},
                           {"rows", nlohmann::json::array()}};
  if (!options.json) {
    fmt::print("{} gradients, {} bytes, {:.2f} ms of computing a step\n", profile->gradients.size(),
               bytes, profile->compute_us * 1e-3);
    fmt::print("{:>5} {:>6} {:>10} {:>12} {:>14} {:>10} {:>9} {:>10}\n", "hosts", "ranks",
               "operations", "agreement_us", "communicate_ms", "exposed_ms", "step_ms",
               "efficiency");
  }
  bool whole = true;
  for (const int hosts : options.hosts) {
    Machine machine = options.machine;
    machine.hosts = hosts;
    const Result<StepTime> time = within_memory(machine, *profile);
    whole = whole && time.ok();
    auto row = to_json(machine, *profile, time);
    if (!options.json) print_step(row);
    std::fflush(stdout);
    report["rows"].push_back(std::move(row));
  }
  if (options.json) fmt::print("{}\n", report.dump(2));
  return whole ? 0 : 1;
}

int run_start_up(const Options& options) {
  nlohmann::json report = {{"machine", to_json(options.machine)},
                           {"rows", nlohmann::json::array()}};
  for (const int hosts : options.hosts) {
    Machine machine = options.machine;
    machine.hosts = hosts;
    nlohmann::json parts = nlohmann::json::array();
    double total = 0;
    for (const StartUpPart& part : start_up_of(machine, options.cores)) {
      total += part.us;
      parts.push_back({{"name", part.name},
                       {"us", part.us},
                       {"store_us", part.store_us},
                       {"sent", part.bytes}});
    }
    if (!options.json) {
      fmt::print("{} hosts, {} ranks: {:.1f} ms\n", hosts, machine.ranks(), total * 1e-3);
      fmt::print("{:>12} {:>12} {:>12} {:>16}\n", "part", "ms", "store_ms", "sent");
      for (const auto& part : parts)
        fmt::print("{:>12} {:>12.1f} {:>12.1f} {:>16}\n", part["name"].get<std::string>(),
                   part["us"].get<double>() * 1e-3, part["store_us"].get<double>() * 1e-3,
                   part["sent"].get<std::uint64_t>());
    }
    report["rows"].push_back({{"hosts", hosts},
                              {"ranks", machine.ranks()},
                              {"total_us", total},
                              {"parts", std::move(parts)}});
  }
  if (options.json) fmt::print("{}\n", report.dump(2));
  return 0;
}

int run(const Options& options) {
  nlohmann::json report = {{"machine", to_json(options.machine)},
                           {"rows", nlohmann::json::array()}};
  if (!options.json) print_head(options.machine);
  bool whole = true;
  for (const int hosts : options.hosts)
    for (const OperationKind kind : options.kinds)
      for (const std::uint64_t bytes : options.sizes) {
        Machine machine = options.machine;
        machine.hosts = hosts;
        const auto rows =
            rows_of(machine, options, {.kind = kind, .bytes = bytes, .type = options.type});
        const double least = least_of(rows);
        for (const Row& row : rows) {
          whole = whole && row.time.ok();
          auto json = to_json(machine, row, least);
          if (!options.json) print_row(json);
          report["rows"].push_back(std::move(json));
        }
        std::fflush(stdout);
      }
  if (options.json) fmt::print("{}\n", report.dump(2));
  return whole ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse(argc, argv, &exit_code);
  if (!options) return exit_code;
  const rlimit limit = {kMostMemory, kMostMemory};
  setrlimit(RLIMIT_AS, &limit);
  if (options->start_up) return run_start_up(*options);
  return options->step ? run_step(*options) : run(*options);
}
