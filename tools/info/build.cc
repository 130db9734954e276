#include "tools/info/build.h"

#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/bootstrap/secret_file.h"
#include "runtime/device/accelerator.h"
#include "runtime/topology/host.h"
#include "tools/info/folded.h"

#include <kolo/config.h>
#include <kolo/device_report.h>
#include <kolo/kolo.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace kolo::info {
namespace {

nlohmann::json to_json(const std::vector<Part>& parts) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Part& part : parts) {
    rows.push_back({{"name", part.name}, {"there", part.there}, {"remark", part.remark}});
  }
  return rows;
}

/// `word` is UCX's name for the transport in `list`, the transports that UCX can use.
Part transport(const std::string& list, std::string name, const std::string& word,
               std::string remark) {
  const bool there = list.find(word) != std::string::npos;
  return {std::move(name), there, there ? "" : std::move(remark)};
}

/// By knob, why init() refuses its value: first each value alone, then values that contradict.
std::map<std::string, std::string> refusals(const Environment& environment) {
  std::map<std::string, std::string> reasons;
  for (const Knob& knob : knobs()) {
    const auto value = environment.get(knob.name);
    if (!value) continue;
    const auto config =
        Config::from_environment(Environment(Environment::Variables{{knob.name, *value}}));
    if (!config.ok()) reasons[knob.name] = config.error().message;
  }
  Status invalid;
  const Config config = Config::from_environment(environment, invalid);
  if (!invalid.ok()) return reasons;
  // Leave the launcher's values to init(), which sees all the processes of the launcher.
  for (const char* name : {"KOLO_INIT_METHOD", "KOLO_RANK", "KOLO_SIZE"}) {
    if (!environment.get(name)) continue;
    // Likewise if the program names the ranks.
    const bool has_ranks = environment.get("KOLO_RANK") || environment.get("KOLO_SIZE");
    const auto request = has_ranks ? RendezvousRequest() : RendezvousRequest{.rank = 0, .size = 1};
    const auto way = find_rendezvous_method(request, config, environment);
    if (!way.ok()) reasons[name] = way.error().message;
    break;
  }
  const auto secret = secret_or_file(config.secret, config.secret_file);
  if (!secret.ok()) reasons["KOLO_SECRET_FILE"] = secret.error().message;
  return reasons;
}

Part cuda() {
  const Accelerators found = find_accelerators();
  if (!KOLO_INFO_CUDA) return {"CUDA", false, found.reason};
  return {"CUDA", true,
          found.count == 0 ? "built in; this process has no device: " + found.reason
                           : fmt::format("devices of this process: {}", found.count)};
}

}  // namespace

nlohmann::json build_json() {
  InitOptions options;
  options.init_method = "single://";
  init(options);
  const std::string list = runtime_info().transport;
  const DeviceReport device = device_report();
  shutdown();
  const Part gpu_direct{"GPUDirect RDMA", device.gpu_direct,
                        device.ordinal < 0 ? device.reason : device.gpu_direct_reason};
  std::vector<Part> operations;
  for (const char* name : {"all-reduce", "all-gather", "broadcast", "reduce-scatter", "all-to-all",
                           "gather", "scatter", "send and receive", "barrier", "join", "Adasum"}) {
    operations.push_back({name, true});
  }
  const auto cores = usable_cores();
  return {
      {"version", version()},
      {"frameworks", to_json({{"LibTorch", KOLO_INFO_TORCH, KOLO_INFO_TORCH ? "" : "built without"},
                              {"raw memory", true, ""}})},
      {"bootstraps", to_json({{"MPI", mpi_built(), mpi_built() ? "" : "built without"},
                              {"PMIx", KOLO_INFO_PMIX, KOLO_INFO_PMIX ? "" : "built without"},
                              {"PMI", true, "pmi://, mpirun of MPICH and Intel MPI"},
                              {"TCP store", true, "tcp://, env://, slurm://, kolo-run"},
                              {"file", true, "file://"},
                              {"store of the user's own", true, "InitOptions::store"}})},
      {"transports",
       to_json({transport(list, "shared memory", "posix", "UCX finds none"),
                transport(list, "CMA", "cma", "not allowed here"),
                transport(list, "TCP", "tcp", "UCX finds no network"),
                transport(list, "RDMA", "rc", "UCX finds no RDMA network card"), gpu_direct})},
      {"operations", to_json(operations)},
      {"devices", to_json({{"CPU", true, fmt::format("cores {}", fmt::join(cores, ", "))},
                           cuda(),
                           {"NCCL", nccl_built(), nccl_built() ? "" : "built without"}})},
      {"ucx", list}};
}

void print_build(const nlohmann::json& build) {
  fmt::print("{}\n", folded(fmt::format("kolo {}, {}", build["version"].get<std::string>(),
                                        build["ucx"].get<std::string>()),
                            "  "));
  for (const char* group : {"frameworks", "bootstraps", "transports", "operations", "devices"}) {
    fmt::print("\n{}:\n", group);
    for (const auto& part : build[group]) {
      const auto remark = part["remark"].get<std::string>();
      const std::string line =
          fmt::format("  [{}] {}{}", part["there"].get<bool>() ? 'X' : ' ',
                      part["name"].get<std::string>(), remark.empty() ? "" : " (" + remark + ")");
      fmt::print("{}\n", folded(line, "      "));
    }
  }
}

nlohmann::json knobs_json(const Environment& environment) {
  const std::vector<std::string> agreed = Config().agreed_settings();
  const auto reasons = refusals(environment);
  nlohmann::json rows = nlohmann::json::array();
  for (const Knob& knob : knobs()) {
    const auto set = environment.get(knob.name);
    const bool hidden = knob.name == "KOLO_SECRET" && set;
    const auto reason = reasons.find(knob.name);
    const auto invalid =
        reason == reasons.end() ? nlohmann::json() : nlohmann::json(reason->second);
    const bool is_agreed = std::any_of(
        agreed.begin(), agreed.end(),
        [&](const std::string& setting) { return setting.starts_with(knob.name + "="); });
    rows.push_back({{"name", knob.name},
                    {"value", hidden ? "(hidden)" : set.value_or(knob.default_value)},
                    {"origin", set ? "environment" : "default"},
                    {"invalid", invalid},
                    {"equal_on_all_ranks", is_agreed},
                    {"unit", knob.unit},
                    {"default", knob.default_value},
                    {"range", knob.range},
                    {"purpose", knob.purpose}});
  }
  return rows;
}

void print_knobs(const nlohmann::json& knobs) {
  const std::string indent(6, ' ');
  const auto text = [](const nlohmann::json& value) {
    const auto word = value.get<std::string>();
    return word.empty() ? "none" : word;
  };
  for (const auto& knob : knobs) {
    fmt::print("{:<24} = {} ({}{})\n", text(knob["name"]), text(knob["value"]),
               text(knob["origin"]), knob["invalid"].is_null() ? "" : "; init() refuses it");
    const std::string what = fmt::format(
        "{} {}; default {}; {}{}", text(knob["purpose"]), text(knob["unit"]), text(knob["default"]),
        text(knob["range"]), knob["equal_on_all_ranks"].get<bool>() ? "; equal on all ranks" : "");
    fmt::print("{}\n", folded(indent + what, indent));
  }
}

bool warn_of_knobs(const Environment& environment) {
  const auto reasons = refusals(environment);
  for (const auto& [_, reason] : reasons) fmt::print(stderr, "kolo-info: {}\n", reason);
  Status invalid;
  for (const std::string& warning : Config::from_environment(environment, invalid).warnings)
    fmt::print(stderr, "kolo-info: {}\n", warning);
  return reasons.empty();
}

}  // namespace kolo::info
