// Which of the devices that a process sees is its rank's. Pure but for the devices that it is told
// of; called once, at start.
#pragma once

#include "runtime/device/accelerator.h"

#include <kolo/error.h>

#include <optional>
#include <string>

namespace kolo {

struct DeviceWish {
  std::string knob = "auto";                 ///< KOLO_DEVICE
  std::optional<int> option = std::nullopt;  ///< InitOptions::device; comes before the knob
  int local_rank = 0;
};

/// The ordinal of the rank's device; nothing: it has none. By its local rank modulo the devices
/// that it sees, unless somebody says: so it is right where every rank sees all devices of its host
/// and where a launcher shows each rank its own alone. kInvalidArgument for a wish that is no
/// device, kUnsupported for a device where there are none.
Result<std::optional<int>> choose_device(const DeviceWish& wish, const Accelerators& visible);

}  // namespace kolo
