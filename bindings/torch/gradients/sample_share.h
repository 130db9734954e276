// The numbers of samples over which ranks' gradients are means in a step, with weigh_by_samples.
// The training loop tells; whoever first needs the sum hears. One thread at a time. Private to
// bindings/torch.
#pragma once

#include "bindings/torch/gradients/step_count.h"

#include <kolo/torch/tensor_work.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace kolo {

class SampleShare {
 public:
  SampleShare() = default;
  ~SampleShare() { sums_.drain(); }
  SampleShare(const SampleShare&) = delete;
  SampleShare& operator=(const SampleShare&) = delete;

  /// Throws kInvalidArgument for a negative number.
  static void check(std::int64_t samples);
  /// Sets this rank's number and shares it by operation `name`, so all ranks must call it. The last
  /// call counts.
  void tell(std::int64_t samples, const std::string& name, const ProcessSet& set);
  /// This rank has told no number for this step.
  bool is_missing() const { return !mine_ && !sums_.valid() && !refused_; }
  /// For such a rank: hear() then throws kInvalidArgument on all ranks. `when` it should have told.
  void refuse(const std::string& when, const std::string& name, const ProcessSet& set);
  bool is_under_way() const { return sums_.valid(); }
  /// Waits, if something is under way.
  void hear(StepCount& step);

  /// This rank's number in this step, once told.
  const std::optional<std::int64_t>& mine() const { return mine_; }
  /// What hear() has found: the ranks' samples, the number of ranks, and whether some have none.
  std::int64_t all() const { return all_; }
  int participants() const { return participants_; }
  bool has_idle_ranks() const { return idle_ranks_ > 0; }
  /// Ends the step; returns this rank's number.
  std::optional<std::int64_t> end();
  /// Ends what is under way, and forgets it.
  void drop();

 private:
  std::optional<std::int64_t> mine_;
  bool refused_ = false;  ///< in this step
  TensorWork sums_;       ///< under way
  std::int64_t all_ = 0;
  int participants_ = 1;
  std::int64_t idle_ranks_ = 0;
};

}  // namespace kolo
