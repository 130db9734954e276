// In which state the machine is. The sweep probes between its repetitions, on the main thread of
// every rank.
#pragma once

#include "tools/perf/statistics.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace kolo::perf {

/// Two ranks of the first host pass a cache line to and fro.
class Probe {
 public:
  /// Collective. Above `far_ns`, one way, the state is far; 0: no probe.
  static std::unique_ptr<Probe> open(double far_ns);

  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe();

  /// Collective; takes about a tenth of a millisecond. The same on every rank.
  Reading read();

 private:
  struct Line;

  Probe(Line* line, int part, double far_ns) : line_(line), part_(part), far_ns_(far_ns) {}
  /// In nanoseconds, one way; 0 once the partner's process has ended, of which kolo tells.
  double ping_pong();
  bool await(const std::atomic<std::uint32_t>& flag) const;

  Line* const line_;  // shared; null on ranks that only look on
  const int part_;    // 0: serves, 1: returns, -1: looks on
  const double far_ns_;
  int partner_ = -1;  // descriptor of its process
  std::uint32_t round_ = 0;
};

}  // namespace kolo::perf
