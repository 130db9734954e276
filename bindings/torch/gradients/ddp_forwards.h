// ForwardWindow: the forwards of a DistributedDataParallel since its last pass. They decide whether
// the next backward communicates, how many steps were left without a backward, and which parameters
// no output uses. The reducer calls it, and holds its mutex where a backward runs. Private to
// bindings/torch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace kolo {

// LibTorch's versions differ in the pointer type that owns a graph's node.
template <class T>
std::weak_ptr<T> weak_of(const std::shared_ptr<T>& node) {
  return node;
}
template <class T, class Null>
c10::weak_intrusive_ptr<T, Null> weak_of(const c10::intrusive_ptr<T, Null>& node) {
  return c10::weak_intrusive_ptr<T, Null>(node);
}
/// Tells whether a graph still exists.
using WeakNode = decltype(weak_of(std::declval<const torch::Tensor&>().grad_fn()));

class ForwardWindow {
 public:
  /// `searches`: every pass searches for parameters that no output uses.
  explicit ForwardWindow(bool searches) : searches_(searches) {}

  /// Whether forwards are inside no_sync() from now on; returns what was.
  bool set_local(bool local) { return std::exchange(local_, local); }
  bool is_in_no_sync() const { return local_; }

  /// A forward begins with grad mode. Returns whether all ranks make it, as one in train() outside
  /// of no_sync(); one in eval() may be this rank's alone.
  bool begin(bool training);
  /// Such a forward of all ranks leads to a pass. It counts as a step if its output is dropped.
  void expect_pass();
  /// No forward is under way; an earlier one may have thrown.
  void leave() { now_ = Now::kOther; }
  bool wants_outputs() const { return now_ != Now::kOther || wants_leaves(); }
  /// The forward returns these; `complete`: these are all its tensors. Returns whether a backward
  /// that reaches one of them communicates, whatever the forwards were.
  bool end(const std::vector<torch::Tensor>& outputs, bool complete);

  /// The backward that runs stays on this rank.
  bool is_local() const { return next_ == Next::kLocal || (next_ == Next::kLocalIsOver && local_); }
  /// Whether this is the first gradient of local backward `graph`, a graph task of autograd.
  bool enter_local(int graph) { return std::exchange(local_graph_, graph) != graph; }
  void end_local(bool is_inner);
  void communicate() { next_ = Next::kCommunicates; }

  /// Forwards whose outputs were dropped before a backward.
  std::uint64_t dropped() const;
  /// Known to be in no output; false where some outputs are not known.
  bool is_unused(const torch::Tensor& parameter) const;
  /// A pass has ended.
  void clear();

 private:
  /// The forward that is under way, or whose outputs are wanted.
  enum class Now : std::uint8_t { kOther, kEval, kCounted };
  /// The next backward. begin() decides between the first two.
  ///   kLocal -> kLocalIsOver  at the end of a local backward: only no_sync() makes another local
  ///   any -> kCommunicates    where a backward reaches the output of a forward in eval()
  enum class Next : std::uint8_t { kCommunicates, kLocal, kLocalIsOver };
  /// The leaves of the outputs: not searched, found, or some outputs have unknown types.
  enum class Found : std::uint8_t { kNone, kAll, kPart };

  /// A forward that leads to a pass.
  struct Forward {
    /// So far or for ever it has thrown or returns nothing, the same on all ranks; or its outputs
    /// are known; or none of them has a gradient or a type that is searched.
    enum class Result : std::uint8_t { kNone, kKnown, kUnknown };
    Result result = Result::kNone;
    std::vector<WeakNode> outputs = {};
  };

  /// Adds the leaves in which the graph of `outputs` ends.
  void add_leaves(const std::vector<torch::Tensor>& outputs);
  /// Whether these are needed to find unused parameters.
  bool wants_leaves() const { return searches_ && (next_ == Next::kCommunicates || any_in_eval_); }

  const bool searches_;
  bool local_ = false;  ///< inside no_sync()
  Now now_ = Now::kOther;
  Next next_ = Next::kCommunicates;
  int local_graph_ = -1;  ///< graph task of the local backward
  // Since the last pass:
  std::vector<Forward> forwards_;
  bool owes_pass_ = false;    ///< a forward of all ranks has begun
  bool any_in_eval_ = false;  ///< a forward in eval(), outside of no_sync()
  Found found_ = Found::kNone;
  std::unordered_set<const void*> leaves_;  ///< by Tensor::unsafeGetTensorImpl()
};

}  // namespace kolo
