#include <kolo/torch/accelerator_config.h>

#include "bindings/core/process_environment.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <set>
#include <utility>

namespace kolo {
namespace {

/// Copies the known settings into `config`; returns the known keys.
std::set<std::string> apply(const Settings& settings, AcceleratorConfig& config) {
  const auto take = [&](const char* key, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_same_v<T, std::optional<int>>) {
      if (settings.has(key)) field = settings.get<int>(key);
    } else {
      field = settings.get<T>(key, field);
    }
    return std::string(key);
  };
  return {take("distributed_type", config.distributed_type),
          take("machine_rank", config.machine_rank),
          take("main_process_ip", config.main_process_ip),
          take("main_process_port", config.main_process_port),
          take("mixed_precision", config.mixed_precision),
          take("num_machines", config.num_machines),
          take("num_processes", config.num_processes),
          take("use_cpu", config.use_cpu),
          take("gradient_accumulation_steps", config.gradient_accumulation_steps)};
}

/// As in YAML: a quote is doubled.
std::string in_single_quotes(const std::string& text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted;
}

struct Flag {
  std::string flag;
  std::string key;  ///< empty if the argument is no flag
  std::optional<std::string> value;
};

/// "--num-processes=2" → "--num-processes", "num_processes", "2".
Flag split_flag(const std::string& argument) {
  Flag result;
  if (!argument.starts_with("--")) return result;
  const auto equals = argument.find('=');
  if (equals != std::string::npos) result.value = argument.substr(equals + 1);
  result.flag = argument.substr(0, equals);
  result.key = result.flag.substr(2);
  std::replace(result.key.begin(), result.key.end(), '-', '_');
  if (result.key == "cpu") result.key = "use_cpu";
  return result;
}

/// `taken` marks the arguments that are this class's flags, or their values.
AcceleratorConfig parse(int argc, const char* const* argv, std::vector<bool>& taken) {
  AcceleratorConfig nothing;
  const std::set<std::string> known = apply({}, nothing);
  AcceleratorConfig config = AcceleratorConfig::from_environment();
  std::string text;
  for (int i = 1; i < argc; ++i) {
    auto [flag, key, value] = split_flag(argv[i]);
    if (key != "config_file" && !known.contains(key)) continue;
    const bool has_next = i + 1 < argc && !std::string(argv[i + 1]).starts_with("--");
    if (!value && key == "use_cpu") value = "true";
    if (!value && !has_next) {
      raise(ErrorCode::kInvalidArgument, flag + ": its value is missing");
    }
    taken[static_cast<std::size_t>(i)] = true;
    if (!value) {
      value = argv[++i];
      taken[static_cast<std::size_t>(i)] = true;
    }
    if (key == "config_file") {
      config = AcceleratorConfig::from_file(*value);
    } else {
      text += key + ": '" + in_single_quotes(*value) + "'\n";
    }
  }
  apply(Settings::from_text(text, "the command line"), config);
  return config;
}

}  // namespace

AcceleratorConfig AcceleratorConfig::from_settings(const Settings& settings) {
  AcceleratorConfig config;
  const std::set<std::string> known = apply(settings, config);
  for (const auto& [key, value] : settings.items()) {
    const std::string top = key.substr(0, key.find('.'));
    const std::string warning = "the setting '" + top + "' is not known here and has no effect";
    if (!known.contains(key) && (config.warnings.empty() || config.warnings.back() != warning)) {
      config.warnings.push_back(warning);
    }
  }
  return config;
}

AcceleratorConfig AcceleratorConfig::from_file(const std::string& path) {
  AcceleratorConfig config = from_settings(Settings::from_file(path));
  for (std::string& warning : config.warnings) warning = path + ": " + warning;
  return config;
}

AcceleratorConfig AcceleratorConfig::from_environment() {
  std::string text;
  for (const auto& [key, variable] :
       {std::pair("mixed_precision", "ACCELERATE_MIXED_PRECISION"),
        std::pair("use_cpu", "ACCELERATE_USE_CPU"),
        std::pair("gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS")}) {
    const std::string value = environment_variable(variable).value_or("");
    if (!value.empty()) text += std::string(key) + ": '" + in_single_quotes(value) + "'\n";
  }
  AcceleratorConfig config;
  apply(Settings::from_text(text, "the environment"), config);
  return config;
}

AcceleratorConfig AcceleratorConfig::from_flags(int argc, const char* const* argv) {
  std::vector<bool> taken(static_cast<std::size_t>(argc), false);
  return parse(argc, argv, taken);
}

AcceleratorConfig AcceleratorConfig::take_flags(int& argc, char** argv) {
  std::vector<bool> taken(static_cast<std::size_t>(argc), false);
  AcceleratorConfig config = parse(argc, argv, taken);
  int left = 0;
  for (int i = 0; i < argc; ++i) {
    if (!taken[static_cast<std::size_t>(i)]) argv[left++] = argv[i];
  }
  argv[left] = nullptr;
  argc = left;
  return config;
}

}  // namespace kolo
