// Which of the devices that a process sees belongs to its rank. Pure function; called once, at
// start.
#pragma once

#include "runtime/device/accelerator.h"

#include <kolo/error.h>

#include <optional>
#include <string>

namespace kolo {

struct DeviceWish {
  std::string knob = "auto";                 ///< KOLO_DEVICE
  std::optional<int> option = std::nullopt;  ///< InitOptions::device; overrides the knob
  int local_rank = 0;
};

/// The ordinal of the rank's device; nothing if it uses none. Without a wish: local rank modulo the
/// visible devices. This fits where every rank sees all devices of its host, and where a launcher
/// shows each rank only its own. kInvalidArgument for a wish that names no visible device;
/// kUnsupported if a device is wished for and there are none.
Result<std::optional<int>> choose_device(const DeviceWish& wish, const Accelerators& visible);

}  // namespace kolo
