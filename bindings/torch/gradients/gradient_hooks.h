// GradientHooks: tells a listener before and after autograd adds to a parameter's gradient. Used by
// the gradient reducers. Called on the thread that autograd uses for a leaf: the thread that calls
// backward for the CPU, and one thread for each other device, concurrently. The gradient is ready
// on that thread's current stream. Private to bindings/torch.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace kolo {

class GradientListener {
 public:
  virtual void before_accumulation(std::size_t index) = 0;
  virtual void after_accumulation(std::size_t index) = 0;
  /// The full name of the parameter, for errors.
  virtual std::string full_name(std::size_t index) const = 0;

 protected:
  ~GradientListener() = default;
};

/// The hooks of one leaf that requires a gradient, until destroyed. A hook that was there before
/// runs first, and stays.
class GradientHooks {
 public:
  GradientHooks() = default;
  GradientHooks(torch::Tensor leaf, const std::weak_ptr<GradientListener>& listener,
                std::size_t index);
  GradientHooks(GradientHooks&&) = default;
  GradientHooks& operator=(GradientHooks&& other) noexcept;
  ~GradientHooks();

  bool installed() const { return leaf_.defined(); }
  /// The full name under which a living listener owns `leaf`; nothing if none does.
  static std::optional<std::string> owner_of(const torch::Tensor& leaf);

 private:
  void remove();
  torch::Tensor leaf_;
  std::weak_ptr<GradientListener> listener_;
  unsigned before_ = 0;
};

/// Throws kUnsupported if the `gradient` of parameter `name` has a graph of its own: the average of
/// `reducer` would not include the other ranks in that graph.
void refuse_graph(const char* reducer, const std::string& name, const torch::Tensor& gradient);

}  // namespace kolo
