// ConfigFile: kolo-run's options and knobs in a YAML file. Also reads what Hugging Face's
// Accelerate writes for its own launcher. Used by kolo-run's main thread.
#pragma once

#include <kolo/error.h>

#include <map>
#include <string>
#include <vector>

namespace kolo::run {

struct ConfigFile {
  /// By long name without dashes, such as "np" or "tag-output"; values as words of a command line.
  std::map<std::string, std::vector<std::string>> options = {};
  std::map<std::string, std::string> variables = {};  ///< for all ranks: knobs, and Accelerate's
  std::vector<std::string> warnings = {};
};

/// kInvalidArgument, with the line, if the file cannot be read or is no YAML map.
Result<ConfigFile> read_config_file(const std::string& path);
/// kInvalidArgument if the file cannot be written.
Status write_config_file(const std::string& path, const ConfigFile& file);

}  // namespace kolo::run
