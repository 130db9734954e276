// GradientHooks: tells a listener when autograd is about to add to a parameter's gradient and when
// it has. Used by the gradient reducers; called on the thread that autograd uses for a leaf: on the
// CPU the one that calls backward, and one for each other device, at the same time. The gradient is
// ready on the current stream of that thread. Private to bindings/torch.
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
  /// The name that `leaf` has with a listener that is still there.
  static std::optional<std::string> owner_of(const torch::Tensor& leaf);

 private:
  void remove();
  torch::Tensor leaf_;
  std::weak_ptr<GradientListener> listener_;
  unsigned before_ = 0;
};

/// Throws kUnsupported where the `gradient` of a parameter of that name has a graph of its own:
/// `reducer` would leave the other ranks out of it.
void refuse_graph(const char* reducer, const std::string& name, const torch::Tensor& gradient);

}  // namespace kolo
