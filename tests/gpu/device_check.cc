// device_check: checks kolo's CUDA device against the host's on a real GPU. Run by hand, by
// tools/gpu_check and by ctest, on a machine with or without a GPU.
#include "tests/gpu/device_check.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

namespace kolo::gpu {
namespace {

struct Options {
  int device = 0;
  bool quick = false;
  std::string json;
  std::string import_key;
};

int run(const Options& options) {
  const Accelerators found = find_accelerators();
  if (found.count == 0) {
    fmt::print("not run: no GPU ({})\n", found.reason);
    return kNothingRun;
  }
  const auto accelerator = open_accelerator(options.device);
  if (!accelerator.ok()) {
    fmt::print("FAILED: {}\n", accelerator.error().message);
    return 1;
  }
  if (!options.import_key.empty()) return import_as_peer(**accelerator, options.import_key);

  const AcceleratorInfo& info = (*accelerator)->info();
  fmt::print("{} of {}: {}, {}, {}, {} MiB, {} processors, {}\n", options.device, found.count,
             info.name, to_string(info.uuid), info.bus_id, info.memory >> 20, info.processors,
             info.versions);
  Verdicts verdicts;
  check_operations(**accelerator, options.quick, verdicts);
  check_memory(**accelerator, options.quick, verdicts);
  nlohmann::json report = {
      {"device", info.name}, {"uuid", to_string(info.uuid)}, {"versions", info.versions}};
  if (!options.quick) {
    const Rates rates = measure(**accelerator, verdicts);
    fmt::print("\n{:28} {:>8.1f} GB/s read and written\n", "the device's own copy",
               rates.copy_bytes_per_second / 1e9);
    for (const auto& [name, share] : rates.shares)
      fmt::print("{:28} {:>8.3f} of it\n", name, share);
    fmt::print("{:28} {:>8.2f} us\n", "a small combination", rates.launch_seconds * 1e6);
    report["copy_bytes_per_second"] = rates.copy_bytes_per_second;
    report["shares"] = rates.shares;
    report["launch_seconds"] = rates.launch_seconds;
  }
  report["checked"] = verdicts.checked();
  report["failed"] = verdicts.failed();
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(1) << '\n';
  fmt::print("{} checks, {} failed\n", verdicts.checked(), verdicts.failed());
  return verdicts.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kolo::gpu

int main(int argc, char** argv) {
  kolo::gpu::Options options;
  CLI::App app(
      "Compares kolo's CUDA device with the host's, and measures it.\n"
      "exit status: 0 all is right; 1 something is not; 77 there is no GPU");
  app.add_option("--device", options.device, "Ordinal of the device");
  app.add_flag("--quick", options.quick, "Few sizes and no rates, as for compute-sanitizer");
  app.add_option("--json", options.json, "File for the rates");
  app.add_option("--import", options.import_key, "As a peer: what device_check calls itself with");
  CLI11_PARSE(app, argc, argv);
  return kolo::gpu::run(options);
}
