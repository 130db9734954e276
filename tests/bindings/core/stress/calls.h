// Runs the steps of a random program on this rank and checks them afterwards. Any thread.
#pragma once

#include "tests/bindings/core/stress/program.h"
#include "tests/support/wrong.h"
#include "tools/perf/gpu.h"

#include <kolo/kolo.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo::test {

/// A step that was submitted.
struct Begun {
  Step step;
  std::vector<std::shared_ptr<Work>> works;
  std::function<std::string()> verify;  ///< returns empty, or what is wrong
};

/// The calls of one thread of this rank.
class Caller {
 public:
  /// `gpu`: null if no step is on one.
  Caller(int rank, const std::map<int, ProcessSet>& sets, std::uint64_t seed, perf::Gpu* gpu)
      : rank_(rank), sets_(sets), dice_(seed), gpu_(gpu) {}

  /// Whether this rank takes part in the step.
  bool takes_part(const Step& step) const;
  /// Submits; with `blocking`, waits where a blocking form exists.
  Begun begin(const Step& step, bool blocking);
  /// Waits. Throws Wrong, or kolo::Exception for a failure that the program does not expect.
  void end(Begun& begun);
  /// By in-order submission; waits if `blocking`.
  Begun begin_ordered(const Step& step, bool blocking);
  /// An invalid call of the world's in-order submission, on this rank alone.
  void refused_ordered();
  /// A step of a round with joins: a rank contributes if it makes at least so many steps.
  Begun begin_joined(const Step& step, const std::vector<int>& contributors);

  Dice& dice() { return dice_; }
  ProcessSet set_of(const Step& step) const;

 private:
  void begin_allreduce(Begun& begun, const std::vector<int>& contributors, int divisor,
                       bool blocking);
  void begin_grouped(Begun& begun);
  void begin_rows(Begun& begun);
  void begin_message(Begun& begun, bool blocking);
  void begin_broadcast(Begun& begun);
  perf::Gpu* gpu_of(const Step& step) const { return step.on_gpu ? gpu_ : nullptr; }
  std::optional<CudaStream> stream_of(const Step& step) const {
    return step.on_gpu ? std::optional(gpu_->stream()) : std::nullopt;
  }

  const int rank_;
  const std::map<int, ProcessSet>& sets_;
  Dice dice_;
  perf::Gpu* const gpu_;
};

}  // namespace kolo::test
