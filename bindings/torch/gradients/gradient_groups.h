// Gradients that travel together: their grouping and common start. Used by the gradient reducer;
// one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/reduced_gradient.h"
#include "bindings/torch/tensors/device_stream.h"

#include <string>
#include <vector>

namespace kolo {

/// The members of each group that `groups` requests, as indices into `parameters`, which lists the
/// optimizer's parameters in order. `optimizer` is its class, for messages. Throws kInvalidArgument
/// for impossible groups.
std::vector<std::vector<std::size_t>> members_of(const std::string& optimizer,
                                                 const GradientGroups& groups,
                                                 const NamedTensors& parameters);

/// Gradients that are submitted as one operation once the last of them is ready; often one alone.
class GradientGroup {
 public:
  /// `name`: the operation's; empty for a gradient alone, which travels by its own name. `settings`
  /// and the members must outlive the group. A member leaves the group in which it was.
  GradientGroup(std::string name, std::vector<ReducedGradient*> members,
                const ReductionSettings& settings);

  /// A member's gradient is ready on its device's current stream.
  void add_ready(torch::Device device) { ready_.add(device); }
  /// The options ask for it; else it is of one gradient that is in no group of theirs.
  bool is_listed() const { return !name_.empty(); }
  /// How the members are reduced.
  TensorAllreduceOptions reduction() const;
  /// Whether no member has anything left to be reduced.
  bool done() const;
  /// Starts the operation if every member that takes part is waiting.
  void start_if_ready();

 private:
  std::vector<TensorWork> start(std::vector<TensorGroupMember> tensors) const;

  std::string name_;
  std::vector<ReducedGradient*> members_;
  const ReductionSettings& settings_;
  ReadyStreams ready_;
};

}  // namespace kolo
