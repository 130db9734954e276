// Probe: measures which state the machine is in. The sweep probes between its repetitions, on the
// main thread of every rank.
#pragma once

#include "tools/perf/shared_lines.h"
#include "tools/perf/statistics.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace kolo::perf {

/// The values of kolo's queries of these names on one rank.
struct Place {
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::int32_t cross_rank = 0;
};

/// The first two ranks of the first host that has two, by all ranks' places; nothing if no host has
/// two. Pure.
std::optional<std::array<int, 2>> pair_of(const std::vector<Place>& places);

/// Two ranks of one host pass a cache line back and forth.
class Probe {
 public:
  /// Collective. The state is "far" above `far_ns` (one way); 0 means no probe.
  static std::unique_ptr<Probe> open(double far_ns);

  /// Collective; takes about a tenth of a millisecond. Returns the same on every rank.
  Reading read();

 private:
  struct Line;

  Probe(std::unique_ptr<SharedLines> memory, int part, double far_ns);
  /// Nanoseconds, one way; 0 once the partner's process has ended, which kolo reports.
  double ping_pong();
  bool await(const std::atomic<std::uint32_t>& flag) const;

  const std::unique_ptr<SharedLines> memory_;
  Line* const line_;  // in the memory; null on ranks outside the pair
  const int part_;    // 0: serves, 1: returns, -1: outside the pair, kNoPair: no pair
  const double far_ns_;
  std::uint32_t round_ = 0;
};

}  // namespace kolo::perf
