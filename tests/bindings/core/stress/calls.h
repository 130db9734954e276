// The steps of a random program, done on this rank and looked at afterwards. Any thread.
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
  std::function<std::string()> verify;  ///< empty, or what is wrong
};

/// Of this rank, and of one thread.
class Caller {
 public:
  /// `gpu`: null if no step is on one.
  Caller(int rank, const std::map<int, ProcessSet>& sets, std::uint64_t seed, perf::Gpu* gpu)
      : rank_(rank), sets_(sets), dice_(seed), gpu_(gpu) {}

  /// Whether this rank has a part in it.
  bool takes_part(const Step& step) const;
  /// Submits, and waits if `blocking` where there is such a form.
  Begun begin(const Step& step, bool blocking);
  /// Waits. Throws Wrong, or kolo::Exception for a failure that the program does not ask for.
  void end(Begun& begun);
  /// At the ordered door; waits if `blocking`.
  Begun begin_ordered(const Step& step, bool blocking);
  /// A call of the world's ordered door that cannot be, on this rank alone.
  void refused_ordered();
  /// One of the steps of a round with joins: those ranks take part that do at least so many.
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
