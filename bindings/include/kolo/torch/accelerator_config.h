// What an Accelerator is started with: fields here, flags of the command line, or a YAML file with
// the keys that `accelerate config` writes. The training program's main thread.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/settings.h>

#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// Keys of the file and flags have these names.
struct KOLO_API AcceleratorConfig {
  /// "NO" (one process), "MULTI_CPU" or "MULTI_GPU"; empty: whatever the launcher has started.
  std::string distributed_type = {};
  /// Of this machine among num_machines. Used with main_process_ip, where one process a machine is
  /// started by hand; a launcher's ranks are its own.
  int machine_rank = 0;
  std::string main_process_ip = {};
  std::optional<int> main_process_port = std::nullopt;
  std::string mixed_precision = "no";  ///< "no", "fp16" or "bf16"
  int num_machines = 1;
  std::optional<int> num_processes = std::nullopt;  ///< of all machines; checked
  bool use_cpu = false;                             ///< the CPU, where there are GPUs, too
  int gradient_accumulation_steps = 1;
  /// One for each key of the file that is not known. The Accelerator prints them on rank 0.
  std::vector<std::string> warnings = {};

  /// Throw kInvalidArgument for values that do not parse, with key and value.
  static AcceleratorConfig from_settings(const Settings& settings);
  static AcceleratorConfig from_file(const std::string& path);
  /// ACCELERATE_MIXED_PRECISION, ACCELERATE_USE_CPU and ACCELERATE_GRADIENT_ACCUMULATION_STEPS,
  /// which a launcher sets by Accelerate's file.
  static AcceleratorConfig from_environment();
  /// from_environment(), or `--config_file FILE` instead, then flags of the keys' names, which
  /// overrule it (`--mixed_precision bf16`, `--mixed-precision=bf16`; `--cpu` and `--use_cpu`
  /// alone). Other flags are the program's own and left alone.
  static AcceleratorConfig from_flags(int argc, const char* const* argv);
  /// The same, and removes these flags, for a parser that knows the program's own alone.
  static AcceleratorConfig take_flags(int& argc, char** argv);
};

}  // namespace kolo
