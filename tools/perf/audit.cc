#include "tools/perf/audit.h"

#include <kolo/info.h>
#include <kolo/kolo.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace kolo::perf {
namespace {

/// All values of KOLO_ALGORITHM but "auto".
constexpr std::string_view kAlgorithms[] = {
    "one_shot",           "two_shot",         "mapped",      "ring",        "bidirectional_ring",
    "recursive_doubling", "halving_doubling", "double_tree", "hierarchical"};
/// How often a size that fails is measured again.
constexpr int kMoreTries = 2;

/// The algorithm of an in-order all-reduce.
std::string algorithm_at(const std::vector<RouteInfo>& routes, std::size_t bytes, bool shared) {
  std::string algorithm;
  // Rows of shared memory come last, where it makes a difference.
  for (const RouteInfo& row : routes) {
    if (row.call == "allreduce" && row.mode == "in-order" && (shared || !row.shared) &&
        row.from_bytes <= bytes)
      algorithm = row.algorithm;
  }
  return algorithm;
}

class Audit {
 public:
  explicit Audit(const AuditOptions& options)
      : options_(options), probe_(Probe::open(options.sweep.far_ns)), chosen_(forced_engine("")) {
    const RuntimeInfo info = runtime_info();
    routes_ = info.routes;
    const bool has_levels = info.inside.latency_us > 0 && info.across.latency_us > 0;
    for (const std::string_view name : kAlgorithms) {
      if (name == "hierarchical" && !has_levels) continue;
      others_.push_back({forced_engine(std::string(name)), {}});
      others_.back().engine->begin_turn();
      others_.back().routes = runtime_info().routes;
    }
    chosen_->begin_turn();
  }
  ~Audit() { chosen_->begin_turn(); }

  nlohmann::json measure(const Problem& problem, Memory memory) {
    const std::size_t bytes = bytes_of(problem, size());
    const bool shared = memory == Memory::kShared;
    const std::string chosen = algorithm_at(routes_, bytes, shared);
    std::vector<Variant> variants = {{chosen_.get(), true}};
    for (const Other& other : others_) {
      const std::string_view name = other.engine->name();
      // Some algorithms do not carry each size; then another one would.
      if (name != chosen && name == algorithm_at(other.routes, bytes, shared))
        variants.push_back({other.engine.get(), true});
    }
    SeriesOptions series_options = options_.sweep.series;
    series_options.memory = memory;
    const Series series = run_series(problem, variants, series_options, *probe_);
    const StateGroup& group = series.states.groups.front();
    nlohmann::json row = {{"size", bytes},
                          {"memory", shared ? "shared" : "private"},
                          {"state", to_string(group.state)},
                          {"busy", group.busy},
                          {"samples", group.samples.front().size()},
                          {"chosen", chosen},
                          {"best", nullptr},
                          {"ratio", nullptr},
                          {"slower_than", nullptr},
                          {"fails", false},
                          {"others_us", nlohmann::json::object()},
                          {"wrong", 0}};
    double worst = 0;
    for (std::size_t v = 0; v < variants.size(); ++v) {
      row["wrong"] = row["wrong"].get<std::int64_t>() + series.wrong[v];
      const double time = statistics_of(group.samples[v]).p50;
      if (v == 0) {
        row["time_us"] = time;
        continue;
      }
      const std::string_view name = variants[v].engine->name();
      row["others_us"][std::string(name)] = time;
      const double ratio = ratios(group.samples[0], group.samples[v]).p50;
      if (ratio <= worst) continue;
      worst = ratio;
      row["best"] = name;
      row["ratio"] = ratio;
    }
    return row;
  }

 private:
  struct Other {
    std::unique_ptr<Engine> engine;
    std::vector<RouteInfo> routes;  ///< while the engine's algorithm is forced
  };

  const AuditOptions& options_;
  const std::unique_ptr<Probe> probe_;
  const std::unique_ptr<Engine> chosen_;
  std::vector<RouteInfo> routes_;
  std::vector<Other> others_;
};

bool is_beyond(const nlohmann::json& row, double within) {
  return !row["ratio"].is_null() && row["ratio"].get<double>() > within;
}

/// Sets "slower_than" and "fails". Rows ascend by size; only those of one memory and one state of
/// the machine can be compared.
void judge(nlohmann::json& rows, double within) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]["slower_than"] = nullptr;
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (rows[j]["memory"] != rows[i]["memory"] || rows[j]["state"] != rows[i]["state"]) continue;
      if (within * rows[j]["time_us"].get<double>() >= rows[i]["time_us"].get<double>()) continue;
      rows[i]["slower_than"] = rows[j]["size"];
      break;
    }
    rows[i]["fails"] = is_beyond(rows[i], within) || !rows[i]["slower_than"].is_null();
  }
}

void print(const nlohmann::json& row, double within, std::string_view remark = "") {
  if (rank() != 0) return;
  std::vector<std::pair<double, std::string>> others;
  for (const auto& [name, time] : row["others_us"].items())
    others.emplace_back(time.get<double>(), name);
  std::sort(others.begin(), others.end());
  std::string line =
      fmt::format("{:>9} {:>7} {:>6} {:>18} {:>10.2f} {:>6}", row["size"].get<std::size_t>(),
                  row["memory"].get<std::string>(),
                  row["state"].get<std::string>() + (row["busy"].get<double>() >= kBusy ? "*" : ""),
                  row["chosen"].get<std::string>(), row["time_us"].get<double>(),
                  row["ratio"].is_null() ? "-" : fmt::format("{:.2f}", row["ratio"].get<double>()));
  for (const auto& [time, name] : others) line += fmt::format("  {} {:.2f}", name, time);
  if (is_beyond(row, within)) line += fmt::format("  NOT WITHIN {:.2f}", within);
  if (!row["slower_than"].is_null())
    line += fmt::format("  SLOWER THAN {}", row["slower_than"].get<std::size_t>());
  fmt::print("{}{}\n", line, remark);
  std::fflush(stdout);
}

}  // namespace

nlohmann::json run_audit(const AuditOptions& options) {
  Audit audit(options);
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::pair<Problem, Memory>> measured;
  if (rank() == 0)
    fmt::print("#{:>8} {:>7} {:>6} {:>18} {:>10} {:>6}  alternatives, us\n", "size (B)", "memory",
               "state", "chosen", "time (us)", "/best");
  for (const Memory memory : options.memories) {
    // Where ranks share no memory, both are one.
    if (memory == Memory::kShared && runtime_info().arena_bytes == 0) continue;
    for (const Problem& problem : sizes_of(options.sweep, {})) {
      measured.emplace_back(problem, memory);
      rows.push_back(audit.measure(problem, memory));
      print(rows.back(), options.within);
    }
  }
  judge(rows, options.within);
  for (int again = 0; again < kMoreTries; ++again) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]["fails"].get<bool>()) continue;
      rows[i] = audit.measure(measured[i].first, measured[i].second);
      judge(rows, options.within);
      print(rows[i], options.within, "  (again)");
    }
  }
  if (rank() != 0) return rows;
  const auto count = [&](const auto& is) { return std::count_if(rows.begin(), rows.end(), is); };
  fmt::print(
      "# {} sizes: {} choices not within {:.2f} of the best alternative, {} slower than a larger "
      "size; {} disturbed by other programs\n",
      rows.size(), count([&](const auto& row) { return is_beyond(row, options.within); }),
      options.within, count([](const auto& row) { return !row["slower_than"].is_null(); }),
      count([](const auto& row) { return row["busy"].template get<double>() >= kBusy; }));
  return rows;
}

}  // namespace kolo::perf
