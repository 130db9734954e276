// The state of a GradientReducer. gradient_reducer.cc has what the training loop calls,
// backward_end.cc the end of a backward. There the ranks tell each other which gradients are under
// way, and each finishes those that are under way on all ranks.
//
// - Finishing more could deadlock: a rank would wait for what another rank submits only at its
//   step(), and that rank may first wait for this one in some other collective.
// - Finishing less would let ranks part: one rank would clip averages after backward(), another
//   would not.
//
// The ranks tell in rounds, one at the end of each backward, as long as the rounds found all ranks
// in the same state; otherwise synchronize() does the rest. A rank that reaches synchronize()
// without having told in a round tells there, unless all is done here. In the latter case a
// backward that only another rank makes meets this rank's next step, which the rounds detect.
//
// Private to bindings/torch; threads as in BackwardRound.
#pragma once

#include "bindings/torch/gradients/backward_round.h"
#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/gradients/reduced_gradient.h"

#include <kolo/torch/distributed_optimizer.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

struct GradientReducer::State final : BackwardRound {
  /// The rounds of a step. A step begins with kNone.
  ///
  ///   kNone    this rank has not told -> kClosed by tell(), until hear()
  ///   kAlike   the last round found all ranks alike, so the next backward has one -> kClosed
  ///   kClosed  no round is to come -> kAlike by hear(), and once synchronize() has done the rest
  enum class Rounds : std::uint8_t { kNone, kAlike, kClosed };

  explicit State(const DistributedOptimizerOptions& options);

  ReductionSettings settings;
  std::deque<ReducedGradient> gradients;
  std::map<const void*, std::string> names;  ///< names of the gradients, by parameter
  std::deque<GradientGroup> groups;          ///< also those that their members have left
  std::optional<std::int64_t> step_samples;  ///< samples of this rank in the last step
  bool skip = false;                         ///< the next step does not synchronize
  Rounds rounds = Rounds::kNone;
  bool has_averages = false;  ///< the last round and what followed it succeeded; no step yet
  bool has_dropped = false;   ///< averages that no step of this rank has used

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  std::string full_name(std::size_t index) const override { return gradients[index].name(); }
  void end_backward() override;
  void end_round();
  void settle();

  /// Takes all parameters of a new optimizer; returns what must be the same on all ranks, for
  /// agree().
  std::vector<std::string> take_parameters(
      const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer,
      const NamedTensors& named);
  /// Parameters that were added since, with the names that they get.
  NamedTensors unknown_of(
      const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer) const;
  void add(torch::Tensor tensor, const std::string& name);
  void install(std::size_t index);
  NamedTensors parameters() const;
  /// See StateComparison::Options.
  std::uint32_t trained() const;
  bool all_done() const;
  std::size_t pending() const;
  /// Nothing takes part here and this rank has not told in this step, perhaps alone among the
  /// ranks.
  bool is_frozen() const;

  /// Tells the other ranks what is under way here, or that nothing is.
  void tell(bool nothing);
  /// Waits for tell() of all ranks, and finishes what is under way everywhere.
  void hear();
  std::vector<std::string> names_under_way() const;
  void hide_all();
  /// Tells all ranks if this rank has gradients of a step but has told no samples for it.
  void refuse_samples();
  void hear_samples();
  /// Runs an action of all ranks of a step. If ranks are at different steps, ends all of this step
  /// with an error on all of them.
  template <class Action>
  auto alike(Action&& action);
  /// Ends, on all ranks, the operations that some ranks have under way when a step is left out, so
  /// that they match nothing that is reduced later.
  void end_left_out();
  /// Submits what is missing. Between tell() and hear() without what may be sparse elsewhere.
  void submit_rest(FirstFailure& failure);
  void finish_rest(FirstFailure& failure);
  /// Resets to the state before the first backward of a step.
  void forget_rounds();
};

}  // namespace kolo
