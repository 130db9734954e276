// LinkCache: keeps the measured costs of links in a file for the next job on the same hosts, so
// that not every start measures them. Only rank 0 reads and writes the file; all ranks take rank
// 0's numbers. Called by the thread that starts the runtime.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/topology/world.h"
#include "runtime/tuning/link_probe.h"

#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

class LinkCache {
 public:
  /// Older measurements are repeated.
  static constexpr std::chrono::hours kLifetime{24};

  /// Keeps nothing.
  LinkCache() = default;
  /// `folder` need not exist; empty: nothing is kept. `topology` is topology_of(), or any text of
  /// one line that is equal exactly when the costs are.
  LinkCache(std::string folder, std::string topology);

  /// The stored costs of this topology; nothing if there are none or they are too old. kInternal if
  /// the file is incomplete, not this user's, or of another topology: it must not be used.
  Result<std::optional<LinkCosts>> load() const;
  /// Replaces the file atomically; only its user can read it. kInternal says why it failed.
  Status store(const LinkCosts& costs) const;

  /// Path of the file; empty: there is none.
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string topology_;
  std::string path_;
};

/// Which rank is on which host, and their transport. `transport` is Transport::description() right
/// after connect(), because it may name more transports later.
std::string topology_of(const World& world, std::string_view transport);

/// Collective: gives rank 0's costs to all ranks; nothing if rank 0 has none. `mine` counts on rank
/// 0.
Result<std::optional<LinkCosts>> share_costs(Bootstrap& bootstrap,
                                             const std::optional<LinkCosts>& mine,
                                             Deadline deadline);

}  // namespace kolo
