// A rank's place on its host, by its launcher and by the world, and the device that follows from
// it. Private to bindings/core; the thread that calls init().
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/device/device_choice.h"
#include "runtime/topology/world.h"

#include <memory>
#include <string>

namespace kolo {

/// 0 also if no launcher announces a local rank.
int announced_local_rank(const RendezvousMethod& way, const Environment& environment);

/// Warns if the launcher announces another local rank than the world has found.
void check_local_rank(const RendezvousMethod& way, const World& world,
                      const std::string& log_level);

/// The device of this rank; null, with the reason, if it has none.
Result<std::unique_ptr<Accelerator>> open_device(DeviceWish wish, const RendezvousMethod& way,
                                                 const World& world, std::string& reason);

}  // namespace kolo
