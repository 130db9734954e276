// LinkCache: what links were measured to cost, kept in a file from one job to the next one on the
// same hosts, so that it need not be measured at each start. Rank 0 alone reads and writes it, and
// all ranks take rank 0's numbers. Called by the thread that starts the runtime.
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
  /// Older measurements are made again.
  static constexpr std::chrono::hours kLifetime{24};

  /// Keeps nothing.
  LinkCache() = default;
  /// `folder` need not be there; empty: nothing is kept. `topology` is topology_of() or any text of
  /// one line that is the same exactly where costs are.
  LinkCache(std::string folder, std::string topology);

  /// What was stored for this topology; nothing if nothing was, or if it is too old. kInternal for
  /// a file that is not whole, not this user's, or of something else: it is not to be used.
  Result<std::optional<LinkCosts>> load() const;
  /// Replaces the file at once; only its user can read it. kInternal says what is in the way.
  Status store(const LinkCosts& costs) const;
  /// As store(), of what running operations have corrected: a scale, no measurement of each link,
  /// so the file stays as old as what it corrects. Nothing if there is none any more.
  Status correct(const LinkCosts& costs) const;

  /// Where the file is; empty: nowhere.
  const std::string& path() const { return path_; }

 private:
  /// `written`: the time of the file; nothing: now.
  Status write(const LinkCosts& costs, const std::optional<timespec>& written) const;

  std::string folder_;
  std::string topology_;
  std::string path_;
};

/// Which rank is on which host, and how they talk. `transport` is Transport::description() after
/// connect(): later it may name more.
std::string topology_of(const World& world, std::string_view transport);

/// Collective: rank 0's costs on all ranks; nothing where it has none. `mine` counts on rank 0.
Result<std::optional<LinkCosts>> share_costs(Bootstrap& bootstrap,
                                             const std::optional<LinkCosts>& mine,
                                             Deadline deadline);

}  // namespace kolo
