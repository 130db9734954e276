// Placement: which rank runs on which host. Pure. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::run {

inline constexpr int kMostRanks = 1 << 20;  ///< of a job

struct Host {
  std::string name;
  int slots = 1;         ///< ranks that it takes
  bool is_here = false;  ///< it is this host

  bool operator==(const Host&) const = default;
};

/// fd00::2, or fe80::2%eth0 with the network that it is of.
bool is_v6_address(std::string_view text);

struct Place {
  int rank = 0;
  std::string host;
  int local_rank = 0;
  int local_size = 1;    ///< ranks of this host
  bool is_here = false;  ///< kolo-run starts it itself, without an agent
};

/// "h1:2,h2" → two slots and one; "[fd00::2]:2,fd00::3" likewise. kInvalidArgument names the item
/// that is wrong.
Result<std::vector<Host>> parse_hosts(std::string_view list);
/// One host a line, as "h1:2", "h1 slots=2" or "h1"; a # begins a comment.
Result<std::vector<Host>> parse_hostfile(std::string_view text);

/// The hosts of the Slurm or PBS allocation that the environment speaks of; empty outside of one.
/// Of PBS the lines that its file has for each host, if they are as many as `ranks`; else the ranks
/// are spread evenly, for what a host's lines stand for not all PBS agree on.
Result<std::vector<Host>> allocated_hosts(const Environment& environment, int ranks);

enum class Mapping : std::uint8_t {
  kSlot,  ///< fills the slots of a host before those of the next
  kNode,  ///< one rank a host in turn, as long as it has slots
};

/// `ranks` 0: all slots. kInvalidArgument if there are too few of them.
Result<std::vector<Place>> place_ranks(const std::vector<Host>& hosts, int ranks,
                                       Mapping mapping = Mapping::kSlot);

std::string this_host();

}  // namespace kolo::run
