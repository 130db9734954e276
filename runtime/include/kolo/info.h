// What this job runs on: for reports, as kolo-info prints them.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// What messages of a kind of link cost, as all-reduces are chosen by now: measured at start or
/// taken from the file of KOLO_LINK_CACHE, and corrected while the job runs. Zeros where there is
/// no such link.
struct LinkInfo {
  double latency_us = 0;
  double gigabytes_per_second = 0;  ///< each way, both ways at once
  double crowd_us = 0;  ///< a message's share of a round in which all ranks send one at once
};

/// The algorithm of all-reduces from so many bytes on, up to the next choice.
struct AllreduceChoice {
  std::uint64_t from_bytes = 0;
  std::string algorithm;  ///< a word of KOLO_ALGORITHM
};

struct RuntimeInfo {
  std::string way_in;            ///< how the ranks found each other
  std::string transport;         ///< library, loaded version, what carries the bytes
  std::size_t shared_bytes = 0;  ///< of this rank's window for schedules; 0: ranks share no memory
  std::size_t arena_bytes = 0;   ///< address space for kolo::allocate(); 0: it gives private memory
  /// Of the device's memory that the host's ranks have mapped, for kolo::allocate_on_device(); 0:
  /// there is none.
  std::size_t device_arena_bytes = 0;
  /// How device memory gets to other hosts, or through what and why; empty where none does.
  std::string device_network;
  /// How ranks of this host reach each other's device memory ("is mapped by all 2 ranks of a host,
  /// on 1 device, by turns …"), or that it passes through the host's memory, and why; empty where
  /// none has any.
  std::string device_inside;
  std::size_t one_shot_bytes = 0;  ///< up to which ordered all-reduces take the one-shot exchange
  std::size_t two_shot_bytes = 0;  ///< and up to which the two-shot exchange
  std::size_t two_shot_shared_bytes = 0;  ///< the same on memory of kolo::allocate()
  /// Up to which two ranks without shared memory trade them, a message each way: then these are
  /// none of `allreduces`.
  std::size_t traded_bytes = 0;
  LinkInfo inside;                          ///< between ranks of one host
  LinkInfo across;                          ///< between hosts
  std::vector<AllreduceChoice> allreduces;  ///< of the world, from 0 bytes on
};

/// Throws kShutdown before init(). Any thread.
KOLO_API RuntimeInfo runtime_info();

}  // namespace kolo
