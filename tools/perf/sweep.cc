#include "tools/perf/sweep.h"

#include "tools/perf/measure.h"
#include "tools/perf/table.h"

#include <kolo/kolo.h>

#include <algorithm>

namespace kolo::perf {
namespace {

using Engines = std::vector<std::unique_ptr<Engine>>;

std::vector<Problem> problems_of(const SweepOptions& options, Collective collective) {
  std::vector<Problem> problems;
  const std::vector<ReduceOp> ops = reduces(collective) ? options.ops : std::vector{ReduceOp::kSum};
  const std::vector<int> roots = has_root(collective) ? options.roots : std::vector{0};
  // A barrier has no elements, hence no type.
  const std::vector<DataType> types =
      collective == Collective::kBarrier ? std::vector{DataType::kUInt8} : options.types;
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      for (const int root : roots) problems.push_back({collective, type, op, root, 0});
    }
  }
  return problems;
}

std::vector<Variant> variants_of(const Engines& engines, const Problem& problem) {
  std::vector<Variant> variants;
  for (const bool in_place : {false, true}) {
    for (const auto& engine : engines) {
      if (engine->supports(problem, in_place)) variants.push_back({engine.get(), in_place});
    }
  }
  return variants;
}

nlohmann::json results_of(const Problem& problem, const std::vector<Variant>& variants,
                          const StateGroup& group, const Series& series, bool check) {
  nlohmann::json results = nlohmann::json::array();
  for (std::size_t v = 0; v < variants.size(); ++v) {
    nlohmann::json result = to_json(statistics_of(group.samples[v]));
    result["engine"] = variants[v].engine->name();
    result["in_place"] = variants[v].in_place;
    // Bytes per nanosecond are GB/s.
    const double algbw =
        static_cast<double>(bytes_of(problem, size())) / result["time_us"].get<double>() / 1e3;
    result["algbw_GBps"] = algbw;
    result["busbw_GBps"] = algbw * bus_factor(problem.collective, size());
    const bool verified = check && variants[v].engine->name() != "memcpy";
    result["wrong"] = verified ? nlohmann::json(series.wrong[v]) : nlohmann::json(nullptr);
    results.push_back(std::move(result));
  }
  return results;
}

/// kolo against each engine that ran the same problem in the same form.
nlohmann::json ratios_of(const std::vector<Variant>& variants, const StateGroup& group) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t mine = 0; mine < variants.size(); ++mine) {
    if (variants[mine].engine->name() != "kolo") continue;
    for (std::size_t theirs = 0; theirs < variants.size(); ++theirs) {
      if (theirs == mine || variants[theirs].in_place != variants[mine].in_place) continue;
      const Statistics ratio = ratios(group.samples[mine], group.samples[theirs]);
      all.push_back({{"peer", variants[theirs].engine->name()},
                     {"in_place", variants[mine].in_place},
                     {"median", ratio.p50},
                     {"p10", ratio.p10},
                     {"p90", ratio.p90}});
    }
  }
  return all;
}

std::vector<nlohmann::json> measure(const Problem& problem, const std::vector<Variant>& variants,
                                    const SweepOptions& options, Probe& probe) {
  const Series series = run_series(problem, variants, options.series, probe);
  std::vector<nlohmann::json> rows;
  for (const StateGroup& group : series.states.groups) {
    nlohmann::json row = {{"collective", to_string(problem.collective)},
                          {"size", bytes_of(problem, size())},
                          {"count", problem.count},
                          {"type", to_string(problem.type)},
                          {"redop", nullptr},
                          {"root", nullptr},
                          {"state", to_string(group.state)},
                          {"probe_ns", group.probe_ns},
                          {"busy", group.busy},
                          {"samples", group.samples.front().size()},
                          {"dropped", series.states.dropped}};
    if (reduces(problem.collective)) row["redop"] = to_string(problem.op);
    if (has_root(problem.collective)) row["root"] = problem.root;
    const bool ordered =
        is_ordered(problem.collective) && options.submission == Submission::kInOrder;
    row["submission"] = ordered ? "in-order" : "negotiated";
    row["results"] = results_of(problem, variants, group, series, options.series.check);
    row["ratios"] = ratios_of(variants, group);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<Problem> sizes_of(const SweepOptions& options, const Problem& problem) {
  std::vector<Problem> sizes;
  for (double next = static_cast<double>(options.min_bytes);
       next <= static_cast<double>(options.max_bytes);
       next = options.increment > 0 ? next + static_cast<double>(options.increment)
                                    : next * options.factor) {
    const Problem size = sized(problem, static_cast<std::size_t>(next), kolo::size());
    if (sizes.empty() || sizes.back().count != size.count) sizes.push_back(size);
  }
  return sizes;
}

nlohmann::json run_sweep(const SweepOptions& options, const Engines& engines) {
  nlohmann::json rows = nlohmann::json::array();
  const auto probe = Probe::open(options.far_ns);
  Table table(engines, options.percentiles);
  for (const Collective collective : options.collectives) {
    if (rank() == 0) table.print_header(collective);
    for (const Problem& problem : problems_of(options, collective)) {
      for (const Problem& sized_problem : sizes_of(options, problem)) {
        const std::vector<Variant> variants = variants_of(engines, sized_problem);
        const bool has_kolo = std::any_of(variants.begin(), variants.end(), [](const Variant& v) {
          return v.engine->name() == "kolo";
        });
        if (!has_kolo) continue;
        for (auto& row : measure(sized_problem, variants, options, *probe)) {
          if (rank() == 0) table.print_row(row);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return rows;
}

bool has_wrong(const nlohmann::json& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const nlohmann::json& row) {
    return std::any_of(row["results"].begin(), row["results"].end(), [](const auto& result) {
      return !result["wrong"].is_null() && result["wrong"] != 0;
    });
  });
}

}  // namespace kolo::perf
