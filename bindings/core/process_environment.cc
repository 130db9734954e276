#include "bindings/core/process_environment.h"

#include "runtime/base/environment.h"

namespace kolo {

std::optional<std::string> environment_variable(const std::string& name) {
  return Environment::of_process().get(name);
}

}  // namespace kolo
