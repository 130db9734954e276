// What this job runs on: for reports, as kolo-info prints them. Call runtime_info() after init().
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// Costs of messages over one kind of link, by which all-reduces are chosen. They are measured at
/// the start, or come from the file of KOLO_LINK_CACHE. All zero if there is no such link.
struct LinkInfo {
  double latency_us = 0;
  double gigabytes_per_second = 0;  ///< in each direction, while both directions are busy
  /// Time of a round in which all ranks send one message at once, divided by the number of ranks.
  double crowd_us = 0;
};

/// The algorithm of all-reduces of at least `from_bytes` bytes, up to the next choice's from_bytes.
struct AllreduceChoice {
  std::uint64_t from_bytes = 0;
  std::string algorithm;  ///< a value of KOLO_ALGORITHM
};

/// Times of an in-order all-reduce in place by each way inside the host, on the slowest rank,
/// measured at the start. Infinite: it cannot go that way.
struct AllreduceTimes {
  std::uint64_t bytes = 0;
  bool shared = false;  ///< in memory of kolo::allocate()
  double one_shot_us = 0;
  double two_shot_us = 0;
  double mapped_us = 0;
};

/// The way of calls of at least `from_bytes` bytes of input on each rank of the world, up to the
/// next row of the same call. kolo decides by the same function.
struct RouteInfo {
  std::string call;  ///< "allreduce", "broadcast", "allgather", …
  std::string mode;  ///< "negotiated", "in-order" or "message"
  bool on_device = false;
  bool shared = false;  ///< in memory of kolo::allocate(); other calls do not differ there
  std::uint64_t from_bytes = 0;
  std::string carrier;    ///< "exchange", "schedule", "device", "staged" or "nccl"
  std::string algorithm;  ///< "one_shot", "mapped", "ring", "messages", …
};

struct RuntimeInfo {
  std::string rendezvous;        ///< how the ranks found each other
  std::string transport;         ///< library, its loaded version, and its transports
  std::size_t shared_bytes = 0;  ///< bytes of this rank's window for schedules; 0: no shared memory
  /// Bytes of address space for kolo::allocate(); 0: allocate() gives private memory.
  std::size_t arena_bytes = 0;
  /// Bytes of device memory for kolo::allocate_on_device(), which the ranks of this host have
  /// mapped. 0: none.
  std::size_t device_arena_bytes = 0;
  /// How device memory reaches other hosts; if not directly, through what and why. Empty if no
  /// device memory goes to other hosts.
  std::string device_network;
  /// How ranks of this host access each other's device memory ("is mapped by all 2 ranks of a host,
  /// on 1 device, by turns …"), or why their data passes through host memory. Empty if no rank of
  /// this host has a device.
  std::string device_inside;
  std::size_t one_shot_bytes = 0;  ///< largest in-order all-reduce that takes the one-shot exchange
  std::size_t two_shot_bytes = 0;  ///< largest in-order all-reduce that takes the two-shot exchange
  std::size_t two_shot_shared_bytes = 0;  ///< two_shot_bytes for memory of kolo::allocate() …
  std::size_t two_shot_shared_from = 0;   ///< … which takes two hops from this size on
  /// Largest all-reduce that takes the two-rank exchange: two ranks without shared memory send each
  /// other one message. `allreduces` does not apply up to this size. 0: not used.
  std::size_t two_rank_bytes = 0;
  LinkInfo inside;                          ///< between ranks of one host
  LinkInfo across;                          ///< between hosts
  std::vector<AllreduceChoice> allreduces;  ///< algorithms of the world, from 0 bytes on
  /// By which one_shot_bytes, two_shot_bytes and two_shot_shared_bytes were chosen. Empty where
  /// constants decide: ranks on several hosts, ranks without cores of their own or disturbed by
  /// others, KOLO_ALGORITHM, KOLO_DETERMINISTIC.
  std::vector<AllreduceTimes> allreduce_times;
  /// Routes of host memory, and of device memory if this rank has a device, from 0 bytes on. Rows
  /// of one call are by size.
  std::vector<RouteInfo> routes;
};

/// Throws kolo::Exception with kShutdown before init(). Any thread.
KOLO_API RuntimeInfo runtime_info();

}  // namespace kolo
