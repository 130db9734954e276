#include "runtime/device/accelerator.h"

#include <fmt/format.h>

namespace kolo {

std::string to_string(const DeviceUuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", begins_group ? "-" : "", uuid[i]);
  }
  return text;
}

}  // namespace kolo
