// Configuration of an Accelerator: fields here, flags of the command line, or a YAML file with the
// keys that `accelerate config` writes. Used by the training program's main thread.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/settings.h>

#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// Settings of an Accelerator. Keys of the file and flags have the names of the fields:
///
///   kolo::AcceleratorConfig config = kolo::AcceleratorConfig::from_flags(argc, argv);
///   config.mixed_precision = "bf16";
///   kolo::Accelerator accelerator(config);
struct KOLO_API AcceleratorConfig {
  /// "NO" (one process), "MULTI_CPU" or "MULTI_GPU". Empty: what the launcher has started.
  std::string distributed_type = {};
  /// Rank of this machine among num_machines. Used with main_process_ip if one process a machine is
  /// started by hand; a launcher assigns its own ranks.
  int machine_rank = 0;
  std::string main_process_ip = {};
  std::optional<int> main_process_port = std::nullopt;
  std::string mixed_precision = "no";  ///< "no", "fp16" or "bf16"
  int num_machines = 1;
  std::optional<int> num_processes = std::nullopt;  ///< number on all machines; checked
  bool use_cpu = false;                             ///< uses the CPU even if there are GPUs
  int gradient_accumulation_steps = 1;
  /// One warning for each unknown key of the file. The Accelerator prints them on rank 0.
  std::vector<std::string> warnings = {};

  /// Both throw kInvalidArgument, with key and value, for values that do not parse.
  static AcceleratorConfig from_settings(const Settings& settings);
  static AcceleratorConfig from_file(const std::string& path);
  /// Reads ACCELERATE_MIXED_PRECISION, ACCELERATE_USE_CPU and
  /// ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which a launcher sets from Accelerate's file.
  static AcceleratorConfig from_environment();
  /// Starts from `--config_file FILE`, or from from_environment() without this flag. Flags with the
  /// keys' names override these values (`--mixed_precision bf16`, `--mixed-precision=bf16`; `--cpu`
  /// and `--use_cpu` without a value). Other flags belong to the program and are ignored.
  static AcceleratorConfig from_flags(int argc, const char* const* argv);
  /// Like from_flags(), and removes these flags from `argv`, for a parser that knows only the
  /// program's own flags.
  static AcceleratorConfig take_flags(int& argc, char** argv);
};

}  // namespace kolo
