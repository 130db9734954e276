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
// Hooks run on autograd's threads, one for each device. All else runs on the training loop's
// thread, at the end of backward in a callback of autograd's engine. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/gradients/reduced_gradient.h"
#include "bindings/torch/gradients/state_comparison.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/name_number.h"

#include <kolo/torch/distributed_optimizer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

struct GradientReducer::State final : GradientListener,
                                      std::enable_shared_from_this<GradientReducer::State> {
  NameNumber number;
  std::string prefix;
  ReductionSettings settings;
  std::deque<ReducedGradient> gradients;
  std::set<const void*> tensors;  ///< the parameters
  std::deque<GradientGroup> groups;
  TensorWork samples;            ///< under way: the sum of the ranks' samples, and of ranks without
                                 ///< any
  std::int64_t idle_ranks = 0;   ///< ranks without samples in this step, once known
  bool samples_refused = false;  ///< in this step
  std::optional<std::int64_t> step_samples;  ///< samples of this rank in the last step
  bool skip = false;
  bool open = true;  ///< a round is to come
  TensorWork ready;  ///< a round: number of ranks with it under way, by parameter; and more
  std::optional<StateComparison> comparison;  ///< compares what rounds tell besides
  bool has_told = false;                      ///< told in a round since the last step or
                                              ///< zero_grad()
  std::set<int> passes;                       ///< autograd's graph tasks whose end is awaited
  std::mutex mutex;  ///< for the hooks, which run on autograd's thread of each device

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  std::string full_name(std::size_t index) const override { return gradients[index].name(); }

  /// Takes all parameters of a new optimizer; returns what must be the same on all ranks, for
  /// agree().
  std::vector<std::string> take_parameters(
      const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer,
      const NamedTensors& named);
  void add(torch::Tensor tensor, const std::string& name);
  void install(std::size_t index);
  NamedTensors parameters() const;
  bool all_done() const;
  bool any_pending() const;
  /// Nothing takes part here and this rank has not told in this step, perhaps alone among the
  /// ranks.
  bool is_frozen() const;
  bool any_wanted() const;

  /// Calls end_pass() at the end of the current backward.
  void await_end();
  void end_pass(int pass);
  /// Calls end_pass() again at the end of the outer backward in whose node the current one has run.
  void await_outer_end();
  /// Tells the other ranks what is under way here, or that nothing is.
  void tell(bool nothing);
  /// Waits for tell() of all ranks, and finishes what is under way everywhere.
  void hear();
  /// Tells all ranks if this rank has gradients of a step but has told no samples for it.
  void refuse_samples();
  void await_samples();
  /// Waits for an operation of all ranks of a step. If ranks are at different steps, ends all of
  /// this step with an error on all of them.
  torch::Tensor await_alike(TensorWork& work);
  /// Ends, on all ranks, the operations that some ranks have under way when a step is left out, so
  /// that they match nothing that is reduced later.
  void end_left_out();
  /// Submits what is missing.
  void submit_rest(FirstFailure& failure);
  void finish_rest(FirstFailure& failure);
  /// Resets to the state before the first backward of a step.
  void forget_rounds();
};

}  // namespace kolo
