// The barrier by which ranks start together without a call of a measured library.
// Main thread of every rank.
#pragma once

#include "tools/perf/shared_lines.h"

#include <kolo/error.h>

#include <cstdint>
#include <memory>

namespace kolo::perf {

/// Each rank writes its round into a cache line of its own and spins on those of the others.
class Barrier {
 public:
  /// Collective. An error on every rank if the ranks do not share a host, or its memory.
  static Result<std::unique_ptr<Barrier>> open();

  void wait();

 private:
  struct Line;

  Barrier(std::unique_ptr<SharedLines> memory, int spins)
      : memory_(std::move(memory)), spins_(spins) {}

  const std::unique_ptr<SharedLines> memory_;
  const int spins_;  // between two yields
  std::uint32_t round_ = 0;
};

}  // namespace kolo::perf
