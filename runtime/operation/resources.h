// Inputs of route(): a process set's Resources, and the rank's Policy. Both are the same on all
// ranks of the set. Pure functions; token holder.
#pragma once

#include "runtime/operation/services.h"
#include "runtime/planning/route.h"
#include "runtime/tuning/link_probe.h"

#include <kolo/config.h>

namespace kolo {

/// Precondition: the process set's slots are settled. Before that, the result serves messages only.
Resources resources_of(const GroupServices& group, const HostWindow& window,
                       const DeviceWindow& devices);

Policy policy_of(const LinkCosts& links, const Config& config);

}  // namespace kolo
