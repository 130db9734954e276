// kolo-chooser: checks whether kolo chooses the fastest all-reduce algorithm here. Every rank has a
// connected runtime that chooses, and one for each possible algorithm. The runtimes take turns,
// operation by operation, so that a disturbance hits all of them. One thread per rank; tools/bench
// chooser starts the ranks.
#include "runtime/bootstrap/rendezvous.h"
#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/cycle/runtime.h"
#include "tools/perf/numbers.h"
#include "tools/perf/report_file.h"
#include "transport/ucx/ucx_transport.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace kolo;
using Clock = std::chrono::steady_clock;

constexpr const char* kExamples = R"(examples:
  mpirun -np 2 kolo-chooser
  mpirun -np 4 kolo-chooser -b 1K -e 1M -n 50 --budget 5
  mpirun -np 2 kolo-chooser -e 64K -J chooser.json
  tools/bench chooser --worlds 2x2        # on hosts made of network namespaces

The report of -J is one object: ranks, local_ranks, inside_ and across_ (us, crowd_us, GBps: what links
cost; 0: there are none) and rows[], one a size: size, chosen, best, times_us by algorithm ("auto" is
the choice), ratio and ratio_forced, as the table has them.)";
constexpr std::uint64_t kBeyondBursts = 1 << 20;  ///< bytes
constexpr std::int64_t kMostABatch = 200;

struct Options {
  std::uint64_t least = 4;
  std::uint64_t most = std::uint64_t{16} << 20;
  std::uint64_t factor = 4;
  int samples = 15;
  double budget_s = 1.5;  ///< per size; large operations get fewer samples
  bool shared = false;    ///< memory of Runtime::allocate()
  std::string json;
};

/// Either the runtime that chooses ("auto"), or one that is forced to the algorithm of its name.
struct Contender {
  std::string name;
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Runtime> runtime;
  std::shared_ptr<std::byte> memory = {};
  std::uint64_t most = UINT64_MAX;  ///< bytes of the largest all-reduce that its algorithm carries
  std::vector<double> times = {};   ///< microseconds, at the size that is measured now
};

Result<Contender> make_contender(const std::string& name, int number) {
  static const auto exchanges = std::make_shared<int>(0);
  const Environment environment = Environment::of_process();
  KOLO_ASSIGN(Config config, Config::from_environment(environment));
  config.algorithm = name;
  KOLO_ASSIGN(const RendezvousMethod way, find_rendezvous_method({}, config, environment));
  const auto deadline = Deadline::after(std::chrono::seconds(config.init_timeout_s));
  KOLO_ASSIGN(auto bootstrap,
              meet(way, {.secret = config.secret, .number = number + 1, .exchanges = exchanges},
                   environment, deadline));
  KOLO_ASSIGN(auto transport,
              make_ucx_transport({.environment = environment, .interface = config.interface}));
  Log log(config.log_level);
  KOLO_ASSIGN(auto runtime, Runtime::start(*bootstrap, {.config = std::move(config),
                                                        .log = std::move(log),
                                                        .transport = std::move(transport),
                                                        .measures_exchange = true}));
  bootstrap->leave(/*met=*/true, deadline);
  return Contender{name, std::move(bootstrap), std::move(runtime)};
}

bool is_exchange(const Contender& contender) {
  return contender.name == "one_shot" || contender.name == "two_shot";
}

/// The runtime takes the algorithm that it is forced to. "hierarchical" also needs two levels.
bool is_possible(const Contender& contender) {
  const World& world = contender.runtime->world();
  if (contender.name == "hierarchical")
    return world.local_size() > 1 && world.local_size() < world.size();
  const RuntimeInfo info = contender.runtime->info();
  return contender.name == "auto" || (is_exchange(contender) && info.two_shot_bytes > 0) ||
         info.allreduces.front().algorithm == contender.name;
}

std::string chosen_at(const RuntimeInfo& info, std::uint64_t bytes, bool shared) {
  const bool one_hop =
      bytes <= info.one_shot_bytes && (!shared || bytes < info.two_shot_shared_from);
  if (bytes <= (shared ? info.two_shot_shared_bytes : info.two_shot_bytes))
    return one_hop ? "one_shot" : "two_shot";
  if (bytes <= info.two_rank_bytes) return "two_rank_exchange";
  std::string name;
  for (const auto& from : info.allreduces)
    if (from.from_bytes <= bytes) name = from.algorithm;
  return name;
}

Status reduce(Contender& contender, std::uint64_t bytes) {
  std::byte* const memory = contender.memory.get();
  return contender.runtime->allreduce_ordered(memory, memory,
                                              static_cast<std::int64_t>(bytes / sizeof(float)),
                                              DataType::kFloat32, ReduceOp::kSum);
}

/// Gives rank 0's number to all ranks.
Result<std::int64_t> agree(Contender& contender, std::int64_t mine) {
  std::int64_t number = contender.runtime->world().rank() == 0 ? mine : 0;
  auto* const memory = reinterpret_cast<std::byte*>(&number);
  KOLO_TRY(
      contender.runtime->allreduce_ordered(memory, memory, 1, DataType::kInt64, ReduceOp::kSum));
  return number;
}

Status measure(const Options& options, std::vector<Contender>& all, std::uint64_t bytes) {
  const auto microseconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  double slowest = 0;
  for (Contender& contender : all) {
    contender.times.clear();
    if (bytes > contender.most) continue;
    KOLO_TRY(reduce(contender, bytes));
    const auto begin = Clock::now();
    KOLO_TRY(reduce(contender, bytes));
    slowest = std::max(slowest, microseconds_since(begin));
  }
  // A sample lasts long enough for the clock, and moves more bytes than a traffic-shaped link lets
  // through as a burst. The first operation of a turn wakes the runtime up and is not timed.
  const auto wanted = std::max(static_cast<std::int64_t>(500 / slowest),
                               static_cast<std::int64_t>(kBeyondBursts / bytes));
  KOLO_ASSIGN(const std::int64_t batch,
              agree(all[0], std::clamp(wanted, std::int64_t{1}, kMostABatch)));
  const double round_us =
      slowest * static_cast<double>(all.size()) * static_cast<double>(batch + 1);
  KOLO_ASSIGN(const std::int64_t samples,
              agree(all[0], std::clamp(static_cast<std::int64_t>(options.budget_s * 1e6 / round_us),
                                       std::min(std::int64_t{5}, std::int64_t{options.samples}),
                                       std::int64_t{options.samples})));
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (Contender& contender : all) {
      if (bytes > contender.most) continue;
      KOLO_TRY(reduce(contender, bytes));
      double sum = 0;
      for (std::int64_t i = 0; i < batch; ++i) {
        // A program writes its next input: the lines come back from the other rank's cache.
        std::memset(contender.memory.get(), 0, bytes);
        const auto begin = Clock::now();
        KOLO_TRY(reduce(contender, bytes));
        sum += microseconds_since(begin);
      }
      contender.times.push_back(sum / static_cast<double>(batch));
    }
  }
  return {};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

nlohmann::json row_of(const std::vector<Contender>& all, std::uint64_t bytes, bool shared) {
  nlohmann::json row = {{"size", bytes},
                        {"chosen", chosen_at(all[0].runtime->info(), bytes, shared)}};
  std::string best;
  double least = 0;
  for (const Contender& contender : all) {
    if (contender.times.empty()) continue;
    const double time = median(contender.times);
    row["times_us"][contender.name] = time;
    if (contender.name == "auto" || (!best.empty() && time >= least)) continue;
    best = contender.name;
    least = time;
  }
  row["best"] = best;
  // ratio_forced takes the time of the runtime that is forced to the chosen algorithm: it is the
  // same algorithm, and the difference is noise.
  const auto forced = row["times_us"].find(row["chosen"].get<std::string>());
  const double chosen = row["times_us"]["auto"];
  row["ratio"] = chosen / least;
  row["ratio_forced"] = (forced == row["times_us"].end() ? chosen : forced->get<double>()) / least;
  return row;
}

void print(const nlohmann::json& row) {
  std::string line =
      fmt::format("{:>9} {:>19} {:>19} {:6.2f} {:6.2f} ", row["size"].get<std::uint64_t>(),
                  row["chosen"].get<std::string>(), row["best"].get<std::string>(),
                  row["ratio"].get<double>(), row["ratio_forced"].get<double>());
  for (const auto& [name, time] : row["times_us"].items())
    line += fmt::format(" {}={:.1f}", name, time.get<double>());
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Gives each contender its memory, and the most that it takes there. Private memory is common to
/// all; shared memory belongs to the window of one runtime.
Status give_memory(const Options& options, std::vector<Contender>& all) {
  const std::size_t count = options.most / sizeof(float) + 1;
  const auto common = std::make_shared<std::vector<float>>(options.shared ? 0 : count);
  for (Contender& contender : all) {
    if (options.shared) {
      KOLO_ASSIGN(contender.memory, contender.runtime->allocate(count * sizeof(float)));
    } else {
      contender.memory = {common, reinterpret_cast<std::byte*>(common->data())};
    }
    if (!is_exchange(contender)) continue;
    const RuntimeInfo info = contender.runtime->info();
    contender.most = options.shared ? info.two_shot_shared_bytes : info.two_shot_bytes;
  }
  return {};
}

Status run(const Options& options) {
  // Check before the ranks meet, so that an impossible option ends all of them.
  std::optional<perf::ReportFile> file;
  if (!options.json.empty()) file.emplace(options.json);
  std::vector<Contender> all;
  int number = 0;
  for (const std::string name :
       {"auto", "one_shot", "two_shot", "mapped", "ring", "bidirectional_ring",
        "recursive_doubling", "halving_doubling", "double_tree", "hierarchical"}) {
    KOLO_ASSIGN(Contender contender, make_contender(name, number++));
    if (is_possible(contender)) all.push_back(std::move(contender));
  }
  KOLO_TRY(give_memory(options, all));
  const World& world = all[0].runtime->world();
  const RuntimeInfo info = all[0].runtime->info();
  nlohmann::json report = {{"ranks", world.size()},
                           {"local_ranks", world.local_size()},
                           {"inside_us", info.inside.latency_us},
                           {"inside_GBps", info.inside.gigabytes_per_second},
                           {"across_us", info.across.latency_us},
                           {"inside_crowd_us", info.inside.crowd_us},
                           {"across_crowd_us", info.across.crowd_us},
                           {"across_GBps", info.across.gigabytes_per_second}};
  if (world.rank() == 0) {
    fmt::print("# {}\n", report.dump());
    fmt::print("{:>9} {:>19} {:>19} {:>6} {:>6} us\n", "bytes", "chosen", "best", "ratio",
               "forced");
  }
  for (std::uint64_t bytes = options.least; bytes <= options.most; bytes *= options.factor) {
    KOLO_TRY(measure(options, all, bytes));
    if (world.rank() != 0) continue;
    report["rows"].push_back(row_of(all, bytes, options.shared));
    print(report["rows"].back());
  }
  if (world.rank() == 0 && file) file->write(report.dump(1) + "\n");
  for (Contender& contender : all) {
    KOLO_TRY(agree(contender, 0));
    contender.memory.reset();
    contender.runtime->shut_down();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "All-reduce of float32 by the algorithm that kolo chooses and by every other one that is\n"
      "possible, in turn. Prints what is chosen, what is fastest, and the chosen one's time "
      "divided\n"
      "by the fastest one's: as it was chosen, and as it was forced.");
  app.footer(kExamples);
  app.add_option("-b,--minbytes", options.least, "smallest size (4)")
      ->transform(perf::as_bytes(sizeof(float)));
  app.add_option("-e,--maxbytes", options.most, "largest size (16M)")
      ->transform(perf::as_bytes(sizeof(float)));
  app.add_option("-f,--stepfactor", options.factor, "factor between sizes (4)")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("-n,--samples", options.samples, "of each algorithm and size (15)")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--budget", options.budget_s, "seconds a size (1.5)")
      ->check(perf::number_within(0, 1e6));
  app.add_flag("--shared", options.shared,
               "memory that the ranks share, as kolo::allocate() gives");
  app.add_option("-J,--json", options.json, "file for the report");
  try {
    app.parse(argc, argv);
    options.least -= options.least % sizeof(float);
    if (options.most < options.least) {
      throw CLI::ValidationError(fmt::format("-e {} is less than -b {}: nothing is between them",
                                             options.most, options.least));
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const Status done = run(options);
    if (done.ok()) return 0;
    fmt::print(stderr, "kolo-chooser: {}\n", done.error().message);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kolo-chooser: there is not so much memory; give a smaller -e\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-chooser: {}\n", error.what());
  }
  return 1;
}
