// The state of a GradientReducer. gradient_reducer.cc has what the training loop calls,
// backward_end.cc what happens at the end of a backward: there the ranks tell each other which
// gradients are under way, and each finishes those that are under way on all of them. More would
// not do: a rank that waits for what another one submits at its step() could wait for ever, since
// that one may await the first in some other collective before. Less neither: a rank that has
// averages after backward() and clips them would part from one that has not.
//
// They tell it in rounds: one at the end of a backward, and after that another one at the end of
// the next, as long as the ranks have found all to be alike; else synchronize() does the rest. A
// rank that comes to synchronize() without having told anything in a round does so there, unless
// all is done here: then a backward that another rank makes alone meets this one's next step, which
// the rounds show.
// Hooks come on autograd's threads, one for each device; all else is the training loop's, at the
// end of backward in a callback of autograd's engine. Private to bindings/torch.
#pragma once

#include "bindings/torch/failure.h"
#include "bindings/torch/gradient_groups.h"
#include "bindings/torch/gradient_hooks.h"
#include "bindings/torch/name_number.h"
#include "bindings/torch/reduced_gradient.h"
#include "bindings/torch/state_comparison.h"

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
  TensorWork samples;            ///< their sum over the ranks, and the ranks without any, under way
  std::int64_t idle_ranks = 0;   ///< ranks that have no samples in this step, once known
  bool samples_refused = false;  ///< of this step
  std::optional<std::int64_t> step_samples;  ///< of this rank, of the last step
  bool skip = false;
  bool open = true;  ///< a round is to come
  TensorWork ready;  ///< a round: by parameter, on how many ranks it is under way; and more
  std::optional<StateComparison> comparison;  ///< what rounds tell besides
  bool has_told = false;                      ///< in a round since the last step or zero_grad()
  std::set<int> passes;                       ///< of autograd, whose end is awaited
  std::mutex mutex;  ///< of the hooks, which each device's thread of autograd's calls

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  std::string full_name(std::size_t index) const override { return gradients[index].name(); }

  /// All of a new optimizer's; what must be alike on all ranks, for agree().
  std::vector<std::string> take_parameters(
      const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer,
      const NamedTensors& named);
  void add(torch::Tensor tensor, const std::string& name);
  void install(std::size_t index);
  NamedTensors parameters() const;
  bool all_done() const;
  bool any_pending() const;
  /// Nothing takes part here, as this rank has not told yet in this step: perhaps on this one
  /// alone.
  bool is_frozen() const;
  bool any_wanted() const;

  /// Calls end_pass() at the end of the backward that runs.
  void await_end();
  void end_pass(int pass);
  /// Calls it again at the end of the backward in whose node the one that ends has run.
  void await_outer_end();
  /// Tells the other ranks what is under way here, or that nothing is.
  void tell(bool nothing);
  /// Waits for what they tell, and finishes what is under way everywhere.
  void hear();
  /// Tells all ranks if this one has gradients of a step for which it has told no samples.
  void refuse_samples();
  void await_samples();
  /// Waits for what all ranks of a step tell each other. Where they are at different ones, all of
  /// this one ends with an error on all.
  torch::Tensor await_alike(TensorWork& work);
  /// No step has been made of what some ranks have under way, as all know: ends it on all, so that
  /// it meets nothing that is reduced later.
  void end_left_out();
  /// What is missing.
  void submit_rest(FirstFailure& failure);
  void finish_rest(FirstFailure& failure);
  /// Back to before the first backward of a step.
  void forget_rounds();
};

}  // namespace kolo
