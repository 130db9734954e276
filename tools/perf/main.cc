// kolo-perf: how fast all-reduce is here, verified. Run by people and scripts, under mpirun or
// alone.
#include "tools/perf/step.h"
#include "tools/perf/sweep.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr const char* kExamples = R"(examples:
  mpirun -np 2 kolo-perf                          # all-reduce, 8 B to 64 MiB
  mpirun -np 4 kolo-perf -b 1K -e 1G -f 4 -d bfloat16 -o avg
  mpirun -np 2 kolo-perf --step                   # the 161 gradients of ResNet-50
  mpirun -np 2 kolo-perf --door named --json out.json

Columns are those of nccl-tests: busbw = algbw * 2(n-1)/n; #wrong counts elements that differ from the
exact result, over all ranks. Each rank rewrites its buffer before each operation, untimed.)";

std::map<std::string, kolo::DataType> all_types() {
  std::map<std::string, kolo::DataType> types;
  for (int i = 0; i < kolo::kDataTypeCount; ++i) {
    const auto type = static_cast<kolo::DataType>(i);
    types.emplace(kolo::to_string(type), type);
  }
  return types;
}
const std::map<std::string, kolo::DataType> kTypes = all_types();
// nccl-tests' names. Adasum's results are not exact, so they are left to the tests.
const std::map<std::string, kolo::ReduceOp> kOps = {{"sum", kolo::ReduceOp::kSum},
                                                    {"avg", kolo::ReduceOp::kAverage},
                                                    {"min", kolo::ReduceOp::kMin},
                                                    {"max", kolo::ReduceOp::kMax},
                                                    {"prod", kolo::ReduceOp::kProduct}};
const std::map<std::string, kolo::perf::ApiDoor> kDoors = {
    {"ordered", kolo::perf::ApiDoor::kOrdered}, {"named", kolo::perf::ApiDoor::kNamed}};

template <class Value>
std::vector<std::string> names_of(const std::map<std::string, Value>& table) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) names.push_back(name);
  return names;
}

bool write_json(const std::string& path, const nlohmann::json& report) {
  std::ofstream file(path);
  file << report.dump(2) << '\n';
  return static_cast<bool>(file.flush());
}

bool has_wrong(const nlohmann::json& report) {
  if (report.contains("step")) return report["step"]["wrong"] != 0;
  for (const auto& row : report["allreduce"]) {
    for (const char* half : {"out_of_place", "in_place"}) {
      const auto& wrong = row[half]["wrong"];
      if (!wrong.is_null() && wrong != 0) return true;
    }
  }
  return false;
}

int run(int argc, char** argv) {
  using namespace kolo;
  perf::SweepOptions sweep;
  perf::StepOptions step;
  bool with_step = false;
  std::string json;
  std::string type = "float32";
  std::string op = "sum";
  std::string door = "ordered";
  CLI::App app("Measures kolo's all-reduce over sizes, or a training step's worth of gradients.",
               "kolo-perf");
  app.footer(kExamples);
  app.add_option("-b,--minbytes", sweep.min_bytes, "smallest size, bytes (suffix K, M, G)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-e,--maxbytes", sweep.max_bytes, "largest size, bytes (suffix K, M, G)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-f,--stepfactor", sweep.factor, "factor between sizes")
      ->check(CLI::Range(1.01, 1e6))
      ->capture_default_str();
  app.add_option("-n,--iters", sweep.iterations, "timed operations a size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", sweep.warmup, "untimed operations before")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("-d,--datatype", type, "element type")
      ->check(CLI::IsMember(names_of(kTypes)))
      ->capture_default_str();
  app.add_option("-o,--op", op, "reduce operation")
      ->check(CLI::IsMember(names_of(kOps)))
      ->capture_default_str();
  app.add_option("-c,--check", sweep.check, "1: verify every element; 0: do not")
      ->capture_default_str();
  app.add_option("--door", door, "ordered: no negotiation; named: as the optimizer calls it")
      ->check(CLI::IsMember(names_of(kDoors)))
      ->capture_default_str();
  app.add_flag("--step", with_step, "the step of 161 ResNet-50 gradients instead of the sweep");
  app.add_option("-J,--json", json, "write the report to this file, too");
  CLI11_PARSE(app, argc, argv);
  sweep.type = kTypes.at(type);
  sweep.op = kOps.at(op);
  sweep.door = kDoors.at(door);

  init(argc, argv);
  nlohmann::json report = {{"kolo", version()}, {"ranks", size()}};
  if (with_step) {
    step.iterations = sweep.iterations;
    step.warmup = sweep.warmup;
    report["step"] = perf::run_step(step);
  } else {
    report["allreduce"] = perf::run_sweep(sweep);
  }
  if (rank() == 0 && !json.empty() && !write_json(json, report)) {
    std::cerr << "kolo-perf: cannot write " << json << '\n';
    return 1;
  }
  if (has_wrong(report)) {
    if (rank() == 0) std::cerr << "kolo-perf: wrong results\n";
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "kolo-perf: " << error.what() << '\n';
    return 1;
  }
}
