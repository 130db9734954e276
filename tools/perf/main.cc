// kolo-perf: measures and verifies kolo's collectives, and those of other libraries. Run by people
// and scripts, alone or under any launcher that kolo::init() knows.
#include "tools/info/link_json.h"
#include "tools/perf/options.h"
#include "tools/perf/report_file.h"
#include "tools/perf/step.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace {

using namespace kolo;

/// The exit status of kolo-run and timeout(1) for a timeout.
constexpr int kTooLate = 124;

extern "C" void give_up(int /*signal*/) {
  constexpr std::string_view kMessage = "kolo-perf: not done within the time that -T gave\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(kTooLate);
}

/// Collective. Opens the report on rank 0, the only rank that may have been given a path. If this
/// fails, rank 0 prints why, and false tells all ranks to end. True if there is nothing to open.
bool open_report(const std::string& path, std::optional<perf::ReportFile>& file) {
  std::uint8_t is_open = 1;
  if (rank() == 0 && !path.empty()) {
    try {
      file.emplace(path);
    } catch (const std::exception& error) {
      std::cerr << fmt::format("kolo-perf: {}\n", error.what());
      is_open = 0;
    }
  }
  broadcast_ordered(&is_open, 1, DataType::kUInt8, 0);
  return is_open != 0;
}

std::vector<std::unique_ptr<perf::Engine>> engines_of(const perf::Options& options,
                                                      perf::Gpu* gpu) {
  std::vector<std::unique_ptr<perf::Engine>> engines;
  engines.push_back(perf::kolo_engine(options.sweep.submission, gpu));
  for (const std::string& name : options.peers) {
    auto engine = perf::peer_engine(name, gpu);
    if (!engine) throw std::runtime_error(engine.error().message);
    engines.push_back(std::move(engine.value()));
  }
  if (options.limit) engines.push_back(perf::memcpy_engine());
  return engines;
}

nlohmann::json header_of(const perf::Options& options) {
  const perf::SeriesOptions& series = options.sweep.series;
  const RuntimeInfo info = runtime_info();
  return {{"kolo", version()},
          {"ranks", size()},
          {"hosts", cross_size()},
          {"inside", to_json(info.inside)},
          {"across", to_json(info.across)},
          {"options",
           {{"iters", series.iterations},
            {"warmup", series.warmup},
            {"batch", series.batch},
            {"check", series.check},
            {"device", series.gpu != nullptr ? "cuda" : "host"},
            {"memory", series.memory == perf::Memory::kShared ? "shared" : "private"},
            {"protocol", series.protocol == perf::Protocol::kHarness ? "harness" : "kolo"},
            {"rewrite", series.rewrite}}}};
}

int run(int argc, char** argv) {
  int exit_code = 0;
  std::optional<perf::Options> options = perf::parse(argc, argv, &exit_code);
  if (!options) return exit_code;
  if (options->timeout_s > 0) {
    std::signal(SIGALRM, &give_up);
    ::alarm(options->timeout_s);
  }
  if (std::count(options->peers.begin(), options->peers.end(), "mpi") > 0) perf::begin_mpi();
  init(argc, argv);
  if (options->all_roots) {
    options->sweep.roots.resize(static_cast<std::size_t>(size()));
    std::iota(options->sweep.roots.begin(), options->sweep.roots.end(), 0);
  }
  for (const int root : options->sweep.roots) {
    if (root < size()) continue;
    throw std::runtime_error(fmt::format("-r {}: there are {} ranks, from 0 on", root, size()));
  }
  std::unique_ptr<perf::Gpu> gpu;
  if (options->on_gpu) {
    if (options->limit) throw std::runtime_error("--device cuda: --limit is not for it");
    auto opened = perf::open_gpu();
    if (!opened) throw std::runtime_error(opened.error().message);
    gpu = std::move(opened.value());
    options->sweep.series.gpu = gpu.get();
    options->sweep.submission = perf::Submission::kNegotiated;
  }
  const auto barrier = perf::Barrier::open();
  if (barrier) {
    options->sweep.series.barrier = barrier.value().get();
  } else if (options->sweep.series.protocol == perf::Protocol::kHarness) {
    throw std::runtime_error("--protocol harness: " + barrier.error().message +
                             ", or take --protocol kolo");
  }
  std::optional<perf::ReportFile> file;
  if (!open_report(options->json, file)) return 1;
  nlohmann::json report = header_of(*options);
  bool wrong = false;
  bool wrong_choice = false;
  bool nothing = false;
  if (options->audit) {
    report["audit"] = perf::run_audit(
        {.sweep = options->sweep, .memories = options->memories, .within = options->within});
    for (const nlohmann::json& row : report["audit"]) {
      wrong |= row["wrong"] != 0;
      wrong_choice |= row["fails"].get<bool>() && row["busy"].get<double>() < perf::kBusy;
    }
    nothing = report["audit"].empty();
  } else if (!options->step.empty()) {
    const perf::SeriesOptions& series = options->sweep.series;
    auto peers = engines_of(*options, gpu.get());
    peers.erase(peers.begin());
    report["step"] = perf::run_step({.name = options->step,
                                     .iterations = series.iterations,
                                     .warmup = series.warmup,
                                     .memory = series.memory,
                                     .gpu = gpu.get()},
                                    peers);
    wrong = report["step"]["wrong"] != 0;
  } else {
    report["rows"] = perf::run_sweep(options->sweep, engines_of(*options, gpu.get()));
    wrong = perf::has_wrong(report["rows"]);
    nothing = report["rows"].empty();
  }
  if (file) file->write(report.dump(2) + '\n');
  if (wrong && rank() == 0) std::cerr << "kolo-perf: wrong results\n";
  if (nothing && rank() == 0)
    std::cerr
        << "kolo-perf: nothing was measured: no collective, type, operation, size and place of "
           "those that were asked for go together (bool has no average, complex numbers no "
           "order, integers no Adasum; -b is at most -e)\n";
  return wrong || wrong_choice || nothing ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "kolo-perf: there is not so much memory; give a smaller -e\n";
    return 1;
  } catch (const std::exception& error) {
    // After the output on stdout, and in one write: other ranks write, too.
    std::cerr << fmt::format("kolo-perf: {}\n", error.what());
    return 1;
  }
}
