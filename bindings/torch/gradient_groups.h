// Gradients that travel together: which ones do, and their common start. Used by the gradient
// reducer, by one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/device_stream.h"
#include "bindings/torch/reduced_gradient.h"

#include <string>
#include <vector>

namespace kolo {

/// The members of each group that `groups` asks for, as places in `names` and `parameters`, which
/// are in order those of an `optimizer`, its class. Throws kInvalidArgument for groups that cannot
/// be.
std::vector<std::vector<std::size_t>> members_of(const std::string& optimizer,
                                                 const GradientGroups& groups,
                                                 const std::vector<std::string>& names,
                                                 const std::vector<torch::Tensor>& parameters);

/// Gradients that are submitted as one operation, once the last of them is ready.
class GradientGroup {
 public:
  /// `settings` and the members outlive it.
  GradientGroup(std::string name, std::vector<ReducedGradient*> members,
                const ReductionSettings& settings);

  /// A member's gradient is there, on its device's current stream.
  void add_ready(torch::Device device) { ready_.add(device); }
  /// Whether nothing is left to be reduced of any member.
  bool done() const;
  /// Starts the operation if every member that requires a gradient waits for it.
  void start_if_ready();

 private:
  std::string name_;
  std::vector<ReducedGradient*> members_;
  const ReductionSettings& settings_;
  ReadyStreams ready_;
};

}  // namespace kolo
