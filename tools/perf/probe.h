// In which state the machine is. On virtual machines a cache line may take about 50 or about 240 ns
// from core to core, and this flips by itself; results of different states say nothing about each
// other. The sweep probes between its repetitions, on the main thread of every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace kolo::perf {

enum class State {
  kUnknown,  ///< not probed: no two ranks of the first host have a core each
  kNear,
  kFar,
};
/// "-", "near", "far".
std::string_view to_string(State state);

struct Reading {
  State state = State::kUnknown;
  double ns = 0;  ///< one way from core to core; median of several short loops
};

/// Two ranks of the first host pass a cache line to and fro.
class Probe {
 public:
  /// Collective. Above `far_ns`, one way, the state is far.
  static std::unique_ptr<Probe> open(double far_ns);

  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe();

  /// Collective; takes about a tenth of a millisecond. The same on every rank.
  Reading read();

 private:
  struct Line;

  Probe(Line* line, int part, double far_ns) : line_(line), part_(part), far_ns_(far_ns) {}
  double ping_pong();

  Line* const line_;  // shared; null on ranks that only look on
  const int part_;    // 0: serves, 1: returns, -1: looks on
  const double far_ns_;
  std::uint32_t round_ = 0;
};

}  // namespace kolo::perf
