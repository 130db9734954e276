// Placement: which rank runs on which host. Pure. Used by kolo-run's main thread.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::run {

inline constexpr int kMostRanks = 1 << 20;  ///< ranks of a job

struct Host {
  std::string name;
  int slots = 1;         ///< ranks that the host takes
  bool is_here = false;  ///< the host is this one

  bool operator==(const Host&) const = default;
};

/// An IPv6 address: fd00::2, or fe80::2%eth0 with its network.
bool is_v6_address(std::string_view text);

struct Place {
  int rank = 0;
  std::string host;
  int local_rank = 0;
  int local_size = 1;    ///< ranks of this host
  bool is_here = false;  ///< kolo-run starts it itself, without an agent
  int process = 0;       ///< in an elastic job: see Lobby
};

/// "h1:2,h2" → two slots and one; "[fd00::2]:2,fd00::3" likewise. kInvalidArgument names the wrong
/// item.
Result<std::vector<Host>> parse_hosts(std::string_view list);
/// One host per line, as "h1:2", "h1 slots=2" or "h1"; a # begins a comment.
Result<std::vector<Host>> parse_hostfile(std::string_view text);

/// The hosts of the Slurm or PBS allocation in the environment; empty outside an allocation. For
/// PBS, a host's slots are its lines in the node file if the file has `ranks` lines. Otherwise the
/// ranks are spread evenly, because PBS versions differ in what a line means.
Result<std::vector<Host>> allocated_hosts(const Environment& environment, int ranks);

enum class Mapping : std::uint8_t {
  kSlot,  ///< fills the slots of a host before those of the next
  kNode,  ///< one rank per host in turn, while the host has slots
};

/// `ranks` 0: all slots. kInvalidArgument if there are too few slots.
Result<std::vector<Place>> place_ranks(const std::vector<Host>& hosts, int ranks,
                                       Mapping mapping = Mapping::kSlot);

std::string this_host();

}  // namespace kolo::run
