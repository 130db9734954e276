// LinkRefresh: what links cost, corrected by how long running all-reduces take. Rank 0 alone notes
// times; when other costs would change a choice clearly, they are to be agreed on (CostSwitch).
// Pure bookkeeping; token holder only.
#pragma once

#include "runtime/collectives/algorithm.h"
#include "runtime/tuning/link_probe.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace kolo {

class LinkRefresh {
 public:
  /// `policy` is the world's at its start.
  explicit LinkRefresh(AllreducePolicy policy);

  /// Whether there is anything to correct: a choice by costs, which nothing forces and which may
  /// change a sum's order.
  static bool has_choice(const AllreducePolicy& policy);

  /// An all-reduce of `bytes` bytes, with partial sums as of price(), has taken so long here, where
  /// no first message waited for this rank. Its waiting for late ones is in it, so of several the
  /// shortest counts.
  void note(Algorithm algorithm, std::uint64_t bytes, double partial_width, double us);

  /// Costs by which another algorithm than now would be taken at some size, and would be clearly
  /// cheaper; nothing if there are none. Each once.
  std::optional<LinkCosts> take_due();
  /// All ranks have these now.
  void adopt(const LinkCosts& costs);

  /// As far as they are known.
  LinkCosts costs() const;

 private:
  /// What measured and priced times differ by, of the operations that latency, or bytes, make up.
  struct Correction {
    double factor = 1;
    double least = 0;  ///< measured by priced, of this window
    int samples = 0;
    void add(double ratio);
  };

  AllreducePolicy policy_;  ///< with the costs that all ranks have
  LinkCosts start_;         ///< what the corrections are applied to
  Correction latency_;
  Correction bytes_;
  bool changed_ = false;
};

}  // namespace kolo
