// StateComparison: checks that state which each rank holds separately is equal on all ranks. A
// gradient reducer has one. The comparison adds kCells numbers to a message that is summed over the
// ranks in each backward or step:
//
//   comparison.set_optimizer(values_of(optimizer, true));  // while no step's message is under way
//   comparison.tell(cells);               // before it is sent
//   comparison.hear(sums, participants);  // once it is there
//   comparison.settle();                  // later: waits for the values, throws or warns
//
// - An optimizer's options and step counts, requires_grad of its parameters, and the scale of a
//   loss, are compared by hashes. A difference is an error each time: kMismatch on all ranks, with
//   the name and both values. The next step would be wrong, or ranks would part.
// - Parameters are compared by a fingerprint, at intervals that double up to 128 messages. A rank
//   whose interval is over asks in one message, and all tell in the next. A difference is a warning
//   of the lowest rank, once: different processors may differ in the last bits, which training
//   tolerates.
// - Nothing is compared while a rank has joined, because that rank tells nothing.
// - hear() may start an operation, in which all ranks of the message take part.
//
// Used by one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/equal_values.h"

#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

class StateComparison {
 private:
  enum Kind : std::size_t { kOptimizer, kLoss, kParameters, kKinds };

 public:
  static constexpr std::size_t kCells = kKinds * kNumberCells + 1;

  struct Options {
    std::string holder;  ///< holder's name for messages: "DistributedOptimizer"
    std::string prefix;  ///< prefix of operations' names
    ProcessSet process_set = {};
    std::function<NamedTensors()> parameters;  ///< parameters to be compared; empty: none
    bool begins_equal = false;                 ///< the parameters were broadcast to all ranks
    /// A hash of requires_grad of all `parameters`; empty: it is not compared.
    std::function<std::uint32_t()> trained = nullptr;
  };
  explicit StateComparison(Options options);
  ~StateComparison() { exchange_.drain(); }
  StateComparison(const StateComparison&) = delete;
  StateComparison& operator=(const StateComparison&) = delete;

  /// The next messages tell these values; values_of() finds them for an optimizer.
  void set_optimizer(EqualValues values) { optimizer_ = std::move(values); }
  /// Likewise: whether no step of this rank has used the averages of the message before.
  void set_dropped(bool has_dropped) { has_dropped_ = has_dropped; }
  /// The next message tells how its losses were scaled, as noted by tell_with_backward().
  void set_loss(EqualValues values) { loss_ = std::move(values); }

  void tell(std::int32_t* cells);
  /// `sums` must come from ranks at the same step.
  void hear(const std::int32_t* sums, int participants);
  bool is_settled() const { return !exchange_.valid(); }
  void settle();
  /// Drops a pending comparison, as if nothing differed.
  void forget();

 private:
  std::vector<std::string> lines_of(Kind kind) const;
  void start_exchange(Kind kind);
  void warn(const std::string& what) const;

  const Options options_;
  EqualValues optimizer_;
  bool has_dropped_ = false;
  EqualValues loss_;       ///< to be told in the next message
  EqualValues told_loss_;  ///< told in the last message
  // For the comparison of parameters:
  std::int64_t messages_ = 0;  ///< number of messages heard
  std::int64_t since_ = 0;     ///< messages since the last comparison
  std::int64_t interval_ = 1;  ///< messages between comparisons
  std::int64_t equal_at_ = 0;  ///< message in which they were equal; 0: none
  bool is_due_;
  bool has_parted_ = false;
  // An exchange of values that is under way:
  TensorWork exchange_;
  Kind differs_ = kOptimizer;
};

}  // namespace kolo
