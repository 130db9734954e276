// Checks and conversions of init()'s options. Runs on the thread that calls init().
#pragma once

#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/bootstrap/store.h"

#include <kolo/kolo.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace kolo {

/// kInvalidArgument for an unknown backend or a timeout below one second. kUnsupported for a
/// backend or a device that this build lacks.
Status check_options(const InitOptions& options);
/// kUnsupported if an elastic job's options name ranks.
Status check_process_sets(const InitOptions& options, bool is_elastic);

/// What find_rendezvous_method() is asked.
RendezvousRequest request_of(const InitOptions& options);

/// Options that must be the same on all ranks, for the handshake. `splits`: see WorldSplits.
std::vector<std::string> agreed_options(const InitOptions& options, const RendezvousMethod& way,
                                        std::size_t splits);

/// Adapts the user's store to the runtime's Store, with the group's name in its key prefix. The
/// store's exceptions become kTransport, or kTimeout after the deadline.
std::unique_ptr<Store> adapt_store(std::shared_ptr<KeyValueStore> store, std::string group_name);

}  // namespace kolo
