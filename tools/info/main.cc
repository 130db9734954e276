// kolo-info: what kolo is built with, what it finds where it is started, and which algorithm it
// would take for which size. Run by people, alone or under a launcher; rank 0 prints.
#include "tools/info/build.h"
#include "tools/info/doctor.h"
#include "tools/info/folded.h"
#include "tools/info/link_json.h"

#include <kolo/device_report.h>
#include <kolo/kolo.h>

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

namespace {

using kolo::info::print_row;

constexpr const char* kExamples = R"(examples:
  kolo-info                         # what this build has, and this host alone
  kolo-run -np 4 kolo-info          # how these ranks meet, their links, their
                                    # choices; under mpirun and srun likewise
  kolo-run -H node1:2,node2:2 kolo-info --json
  kolo-run -np 4 kolo-info --routes # which way each call goes, by size
  kolo-info --build                 # what this build has, as a table
  kolo-info --knobs                 # every KOLO_ variable, and what is wrong
  kolo-info --doctor                # what stands in the way on this host
  kolo-run -H node1:2,node2:2 kolo-info --doctor   # and between the hosts
  kolo-info --doctor --json         # a line of JSON a host, and one of the job

Link speeds, between two ranks of one host and of two hosts, are those by which
algorithms are chosen: measured at start, or within the last day
(KOLO_LINK_CACHE=0: now). The documents that messages name are in
share/doc/kolo where kolo is installed.)";

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

/// Null for a way that is not there.
nlohmann::json to_json(const kolo::AllreduceTimes& times) {
  const auto time = [](double us) { return std::isfinite(us) ? nlohmann::json(us) : nullptr; };
  return {{"bytes", times.bytes},
          {"shared", times.shared},
          {"one_shot_us", time(times.one_shot_us)},
          {"two_shot_us", time(times.two_shot_us)},
          {"mapped_us", time(times.mapped_us)}};
}

/// Collective: what rank 0 prints about the job.
nlohmann::json job_json() {
  const kolo::RuntimeInfo info = kolo::runtime_info();
  nlohmann::json choices = nlohmann::json::array();
  nlohmann::json routes = nlohmann::json::array();
  for (const kolo::RouteInfo& route : info.routes)
    routes.push_back({{"call", route.call},
                      {"mode", route.mode},
                      {"memory", route.on_device ? "device"
                                 : route.shared  ? "shared"
                                                 : "host"},
                      {"from_bytes", route.from_bytes},
                      {"carrier", route.carrier},
                      {"algorithm", route.algorithm}});
  for (const kolo::AllreduceChoice& choice : info.allreduces)
    choices.push_back({{"from_bytes", choice.from_bytes}, {"algorithm", choice.algorithm}});
  nlohmann::json times = nlohmann::json::array();
  for (const kolo::AllreduceTimes& row : info.allreduce_times) times.push_back(to_json(row));
  const kolo::DeviceReport device = kolo::device_report();
  return {{"version", kolo::version()},
          {"mpi_built", kolo::mpi_built()},
          {"cuda_built", kolo::cuda_built()},
          {"nccl_built", kolo::nccl_built()},
          {"device",
           {{"ordinal", device.ordinal},
            {"reason", device.reason},
            {"name", device.name},
            {"uuid", device.uuid},
            {"versions", device.versions},
            {"cuda_ipc", device.cuda_ipc},
            {"cuda_ipc_reason", device.cuda_ipc_reason},
            {"gpu_direct", device.gpu_direct},
            {"gpu_direct_reason", device.gpu_direct_reason}}},
          {"device_network", info.device_network},
          {"device_inside", info.device_inside},
          {"size", kolo::size()},
          {"local_size", kolo::local_size()},
          {"cross_size", kolo::cross_size()},
          {"rendezvous", info.rendezvous},
          {"transport", info.transport},
          {"shared_bytes", info.shared_bytes},
          {"arena_bytes", info.arena_bytes},
          {"one_shot_bytes", info.one_shot_bytes},
          {"two_shot_bytes", info.two_shot_bytes},
          {"two_shot_shared_bytes", info.two_shot_shared_bytes},
          {"two_shot_shared_from", info.two_shot_shared_from},
          {"two_rank_bytes", info.two_rank_bytes},
          {"inside", to_json(info.inside)},
          {"across", to_json(info.across)},
          {"allreduce", std::move(choices)},
          {"allreduce_times", std::move(times)},
          {"routes", std::move(routes)}};
}

std::string link_text(const nlohmann::json& link) {
  if (link.is_null()) return "none";
  return fmt::format("{:.2f} us, {:.2f} us a message of all ranks at once, {:.2f} GB/s",
                     link["latency_us"].get<double>(), link["crowd_us"].get<double>(),
                     link["GBps"].get<double>());
}

void print_device(const nlohmann::json& device) {
  const auto text = [&](const char* name) { return device[name].get<std::string>(); };
  if (device["ordinal"].get<int>() < 0) {
    print_row("device", "none on rank 0: " + text("reason"));
    return;
  }
  const auto answer = [&](const char* name, const char* reason) {
    return fmt::format("{}: {}", device[name].get<bool>() ? "yes" : "no", text(reason));
  };
  print_row("device", fmt::format("{}, {}, {}", text("name"), text("uuid"), text("versions")));
  print_row("CUDA IPC", answer("cuda_ipc", "cuda_ipc_reason"));
  print_row("GPUDirect RDMA", answer("gpu_direct", "gpu_direct_reason"));
  print_row("not yet tried",
            "on hardware: several GPUs, NCCL between them, GPUDirect RDMA (docs/gpu.md)");
}

/// How long ordered all-reduces take by each way, as measured at the start.
void print_times(const nlohmann::json& rows) {
  for (const auto& row : rows) {
    std::string text;
    for (const char* const way : {"one_shot", "two_shot", "mapped"}) {
      const auto& time = row[fmt::format("{}_us", way)];
      if (!time.is_null()) text += fmt::format("  {} {:.1f}", way, time.get<double>());
    }
    print_row(row["shared"].get<bool>() ? "shared, us" : "private, us",
              fmt::format("{:>7}:{}", size_text(row["bytes"].get<std::uint64_t>()), text));
  }
}

void print_shared_memory(const nlohmann::json& job) {
  const auto bytes = [&](const char* name) { return job[name].get<std::uint64_t>(); };
  if (bytes("shared_bytes") == 0) {
    print_row("shared memory", "none");
    return;
  }
  print_row("shared memory",
            fmt::format("{} for schedules, {} of addresses for kolo::allocate()",
                        size_text(bytes("shared_bytes")), size_text(bytes("arena_bytes"))));
  print_row("one-shot", "ordered all-reduces of up to " + size_text(bytes("one_shot_bytes")));
  if (bytes("two_shot_bytes") > bytes("one_shot_bytes"))
    print_row("two-shot", "of up to " + size_text(bytes("two_shot_bytes")));
  if (bytes("two_shot_shared_bytes") >= bytes("two_shot_shared_from"))
    print_row("two-shot", fmt::format("of {} to {} on memory of kolo::allocate()",
                                      size_text(bytes("two_shot_shared_from")),
                                      size_text(bytes("two_shot_shared_bytes"))));
  print_times(job["allreduce_times"]);
}

void print_job(const nlohmann::json& job) {
  const auto yes = [&](const char* name) { return job[name].get<bool>() ? "yes" : "no"; };
  const auto text = [&](const char* name) { return job[name].get<std::string>(); };
  fmt::print("kolo {}: MPI {}, CUDA {}, NCCL {}\n", text("version"), yes("mpi_built"),
             yes("cuda_built"), yes("nccl_built"));
  const int hosts = job["cross_size"].get<int>();
  print_row("ranks", fmt::format("{}, {} on this host, {} host{}", job["size"].get<int>(),
                                 job["local_size"].get<int>(), hosts, hosts == 1 ? "" : "s"));
  print_row("met by", text("rendezvous"));
  print_row("transport", text("transport"));
  print_device(job["device"]);
  if (!text("device_inside").empty()) print_row("device memory", text("device_inside"));
  if (!text("device_network").empty())
    print_row("to other hosts", "device memory goes " + text("device_network"));
  print_shared_memory(job);
  if (const auto most = job["two_rank_bytes"].get<std::uint64_t>(); most > 0) {
    print_row("two ranks",
              fmt::format("ordered all-reduces of up to {}, a message each way", size_text(most)));
  }
  print_row("inside a host", link_text(job["inside"]));
  print_row("between hosts", link_text(job["across"]));
  for (const auto& choice : job["allreduce"]) {
    print_row("all-reduce",
              fmt::format("from {:>8}: {}", size_text(choice["from_bytes"].get<std::uint64_t>()),
                          choice["algorithm"].get<std::string>()));
  }
}

/// Which way calls go, by size: kolo's own answer for these ranks.
void print_routes(const nlohmann::json& job) {
  fmt::print("{:<13} {:<10} {:<6} {:>9}  {:<8} {}\n", "call", "mode", "memory", "from", "carrier",
             "algorithm");
  for (const auto& row : job["routes"]) {
    const auto text = [&](const char* name) { return row[name].get<std::string>(); };
    fmt::print("{:<13} {:<10} {:<6} {:>9}  {:<8} {}\n", text("call"), text("mode"), text("memory"),
               size_text(row["from_bytes"].get<std::uint64_t>()), text("carrier"),
               text("algorithm"));
  }
}

/// The first rank of each host examines its host; rank 0 also examines the job.
int examine(int argc, char** argv, bool json) {
  const auto print = json ? kolo::info::print_findings_json : kolo::info::print_findings;
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  try {
    kolo::init(argc, argv);
  } catch (const std::exception& error) {
    // A problem of this host may be the cause.
    print(host.data(), kolo::info::examine_host());
    print("job", {{false, error.what()}});
    return 1;
  }
  int bad = 0;
  if (kolo::local_rank() == 0) {
    bad += print(host.data(), kolo::info::examine_host());
  }
  const auto of_job = kolo::info::examine_job();
  if (kolo::rank() == 0) bad += print("job", of_job);
  kolo::shutdown();
  return bad > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Says what kolo is built with, what it finds, and which algorithms it chooses.",
               "kolo-info");
  app.footer(kExamples);
  app.set_version_flag("--version", "kolo " + kolo::version());
  bool json = false;
  bool knobs = false;
  bool build = false;
  bool doctor = false;
  bool routes = false;
  app.add_flag("--json", json, "print JSON");
  auto* const as_knobs = app.add_flag("--knobs", knobs,
                                      "every KOLO_ variable, its value and origin;\n"
                                      "exit status 1 if init() would refuse one");
  auto* const as_build =
      app.add_flag("--build", build, "what this build has; starts no job")->excludes(as_knobs);
  app.add_flag("--routes", routes,
               "which carrier and algorithm each call takes,\nby bytes of input on each rank")
      ->excludes(as_knobs)
      ->excludes(as_build);
  app.add_flag("--doctor", doctor,
               "tests this host and the job's network;\nexit status 1 for findings")
      ->excludes(as_knobs)
      ->excludes(as_build);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto show = [json](const nlohmann::json& what, void (*print)(const nlohmann::json&)) {
    if (json) {
      std::cout << what.dump(2) << std::endl;
    } else {
      print(what);
    }
  };
  try {
    if (knobs) {
      const auto environment = kolo::Environment::of_process();
      show(kolo::info::knobs_json(environment), kolo::info::print_knobs);
      return kolo::info::warn_of_knobs(environment) ? 0 : 1;
    }
    if (build) {
      show(kolo::info::build_json(), kolo::info::print_build);
      return 0;
    }
    if (doctor) return examine(argc, argv, json);
    kolo::init(argc, argv);
    const nlohmann::json job = job_json();
    if (kolo::rank() == 0) {
      if (json) {
        std::cout << job.dump(2) << std::endl;
      } else {
        routes ? print_routes(job) : print_job(job);
      }
    }
    kolo::shutdown();
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-info: {}\n", error.what());
    return 1;
  }
  return 0;
}
