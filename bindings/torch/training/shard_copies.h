// Who keeps copies of which parts of a sharded optimizer's state, and from which copies a world can
// go on. Used by ShardBackup; pure, and the same on every rank. Private to bindings/torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace kolo {

/// For each rank: the rank that keeps a copy of its part. `hosts` has the host of each rank. A
/// permutation. It leads to other hosts, unless one host has more than half of the ranks; in a
/// world of one to the rank itself.
std::vector<int> keepers_of(const std::vector<int>& hosts);

/// A backup: when it was made, and of how many parts it consists.
struct BackupVersion {
  std::int64_t generation = 0;  ///< number of the world that made it; 0: none
  std::int64_t progress = 0;
  std::int64_t parts = 0;

  bool operator==(const BackupVersion&) const = default;
  bool operator<(const BackupVersion& other) const {
    return std::tie(generation, progress) < std::tie(other.generation, other.progress);
  }
};

/// One copy of a part of a backup.
struct PartCopy {
  int holder = 0;
  BackupVersion version;
  std::int64_t part = 0;  ///< rank in the world of the version
  std::int64_t bytes = 0;
};

/// The newest backup of which copies of all parts exist.
struct WholeBackup {
  BackupVersion version;
  std::vector<PartCopy> parts;  ///< by part
};

/// Nothing if no backup is whole.
std::optional<WholeBackup> newest_whole(const std::vector<PartCopy>& copies);
/// Says of the newest backup which parts are gone. Precondition: no backup is whole.
std::string parts_gone(const std::vector<PartCopy>& copies);

}  // namespace kolo
