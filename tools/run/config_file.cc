#include "tools/run/config_file.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/store_wire.h"
#include "tools/run/read_text.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

namespace kolo::run {
namespace {

// Keys by which Accelerate's files are recognised, and those that have a meaning here.
constexpr const char* kDistributedType = "distributed_type";
const std::set<std::string>& kinds_of_accelerate() {
  static const std::set<std::string> kinds = {"NO", "MULTI_CPU", "MULTI_GPU"};
  return kinds;
}

const std::set<std::string>& known_of_accelerate() {
  static const std::set<std::string> known = {"machine_rank",      "main_process_ip",
                                              "main_process_port", "mixed_precision",
                                              "use_cpu",           kDistributedType,
                                              "num_machines",      "num_processes",
                                              "gpu_ids",           "gradient_accumulation_steps"};
  return known;
}

/// Accelerate's keys, and the options that mean the same.
constexpr std::pair<const char*, const char*> kOptionsOfAccelerate[] = {
    {"machine_rank", "node-rank"},
    {"main_process_ip", "master-addr"},
    {"main_process_port", "master-port"}};

std::string as_option(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

std::string text_of(const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : ""; }

bool is_true(const YAML::Node& node) {
  bool value = false;
  return YAML::convert<bool>::decode(node, value) && value;
}

Error no_value(const std::string& path, const std::string& key) {
  return KOLO_ERROR(kInvalidArgument, "{}: '{}' has no text or number as its value", path, key);
}

Result<ConfigFile> from_accelerate(const std::string& path, const YAML::Node& root) {
  ConfigFile file;
  std::map<std::string, std::string> found;
  for (const auto& entry : root) {
    const auto key = entry.first.Scalar();
    if (!known_of_accelerate().contains(key)) {
      file.warnings.push_back(fmt::format("{}: Accelerate's '{}' has no effect here", path, key));
      continue;
    }
    const auto value = text_of(entry.second);
    const bool is_empty = entry.second.IsNull() || entry.second.size() == 0;
    if (value.empty() && !is_empty) return no_value(path, key);
    if (!value.empty()) found[key] = value;
  }
  for (const auto& [key, option] : kOptionsOfAccelerate)
    if (found.contains(key)) file.options[option] = {found[key]};
  if (found.contains("gpu_ids") && found["gpu_ids"] != "all")
    file.options["gpu-ids"] = {found["gpu_ids"]};
  if (found.contains("mixed_precision"))
    file.variables["ACCELERATE_MIXED_PRECISION"] = found["mixed_precision"];
  if (found.contains("use_cpu"))
    file.variables["ACCELERATE_USE_CPU"] = is_true(YAML::Node(found["use_cpu"])) ? "true" : "false";
  if (found.contains("gradient_accumulation_steps"))
    file.variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = found["gradient_accumulation_steps"];
  if (!kinds_of_accelerate().contains(found[kDistributedType])) {
    return KOLO_ERROR(kUnsupported,
                      "{}: distributed_type '{}' is not what kolo-run starts: expected MULTI_CPU, "
                      "MULTI_GPU or NO",
                      path, found[kDistributedType]);
  }
  const auto machines = parse_count(found.contains("num_machines") ? found["num_machines"] : "1");
  const auto processes =
      parse_count(found.contains("num_processes") ? found["num_processes"] : "1");
  if (!machines || !processes || *machines < 1 || *processes % *machines != 0) {
    return KOLO_ERROR(kInvalidArgument,
                      "{}: num_processes '{}' do not spread evenly over num_machines '{}'", path,
                      found["num_processes"], found["num_machines"]);
  }
  file.options["nnodes"] = {std::to_string(*machines)};
  file.options["nproc-per-node"] = {std::to_string(*processes / *machines)};
  return file;
}

Result<ConfigFile> from_options(const std::string& path, const YAML::Node& root) {
  ConfigFile file;
  for (const auto& entry : root) {
    const auto key = entry.first.Scalar();
    if (key.starts_with("KOLO_")) {
      if (!entry.second.IsScalar()) return no_value(path, key);
      file.variables[key] = entry.second.Scalar();
    } else if (entry.second.IsSequence()) {
      for (const auto& item : entry.second) {
        if (!item.IsScalar()) return no_value(path, key);
        file.options[as_option(key)].push_back(item.Scalar());
      }
    } else if (entry.second.IsScalar()) {
      file.options[as_option(key)] = {entry.second.Scalar()};
    } else {
      file.warnings.push_back(fmt::format("{}: '{}' has no value and no effect", path, key));
    }
  }
  return file;
}

}  // namespace

Result<ConfigFile> read_config_file(const std::string& path) {
  KOLO_ASSIGN(const std::string text, read_text(path));
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) {
      return KOLO_ERROR(kInvalidArgument, "{} is no map of options: expected lines as 'np: 4'",
                        path);
    }
    if (root[kDistributedType]) return from_accelerate(path, root);
    return from_options(path, root);
  } catch (const YAML::Exception& error) {
    return KOLO_ERROR(kInvalidArgument, "{}: {}", path, error.what());
  }
}

Status write_config_file(const std::string& path, const ConfigFile& file) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  for (const auto& [name, values] : file.options) {
    out << YAML::Key << name << YAML::Value;
    if (name == "env") {
      out << values;
    } else {
      out << (values.empty() ? std::string() : values.back());
    }
  }
  for (const auto& [name, value] : file.variables) out << YAML::Key << name << YAML::Value << value;
  out << YAML::EndMap;
  std::ofstream stream(path);
  stream << out.c_str() << "\n";
  stream.close();
  if (stream) return {};
  return KOLO_ERROR(kInvalidArgument, "cannot write {}: {}", path,
                    std::generic_category().message(errno));
}

}  // namespace kolo::run
