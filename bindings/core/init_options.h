// What init() makes of its options besides the way in. The thread that calls init.
#pragma once

#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/way_in.h"

#include <kolo/kolo.h>

#include <memory>
#include <string>
#include <vector>

namespace kolo {

/// kInvalidArgument for a backend that kolo does not know, kUnsupported for one, or a device, that
/// this build has not; kInvalidArgument for a timeout below a second.
Status check_options(const InitOptions& options);

/// What all ranks must agree on, for the handshake.
std::vector<std::string> agreed_options(const InitOptions& options, const WayIn& way);

/// The user's store as the runtime's, under the group's name. What it throws becomes a kTransport,
/// after the deadline a kTimeout.
std::unique_ptr<Store> adapt_store(std::shared_ptr<KeyValueStore> store, std::string group_name);

}  // namespace kolo
