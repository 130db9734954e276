// StateComparison: whether what each rank has of its own, and what must be equal on all, is equal.
// A reducer of gradients has one, and lets it add kCells numbers to a message of each backward or
// step that is summed over the ranks:
//
//   comparison.set_optimizer(values_of(optimizer, true));  // while no step's message is under way
//   comparison.tell(cells);               // before it is sent
//   comparison.hear(sums, participants);  // once it is there
//   comparison.settle();                  // later: waits for the values, throws or warns
//
// - Of all ranks, by hashes that each tells: an optimizer's options and counts of steps, and what a
//   loss was scaled by. A difference is an error, kMismatch on all ranks with the name and both
//   values, each time: what is then stepped is wrong, or parts the ranks.
// - Parameters, by a fingerprint, at distances that double up to 128 messages: a rank for which it
//   is time asks in one message, and all tell in the next. A difference is a warning, of the lowest
//   rank, once: where processors differ, ranks may part in the last bits, which training bears.
// - Nothing is compared while a rank has joined: it tells nothing.
// - hear() may start an operation, which all ranks of the message take part in.
//
// Used by one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/equal_values.h"

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
    std::string holder;  ///< for messages: "DistributedOptimizer"
    std::string prefix;  ///< of operations' names
    ProcessSet process_set = {};
    std::function<NamedTensors()> parameters;  ///< to be compared; empty: none
    bool begins_equal = false;                 ///< they have been sent to all ranks
  };
  explicit StateComparison(Options options);
  ~StateComparison() { exchange_.drain(); }
  StateComparison(const StateComparison&) = delete;
  StateComparison& operator=(const StateComparison&) = delete;

  /// The next messages tell these, as values_of() finds them of an optimizer.
  void set_optimizer(EqualValues values) { optimizer_ = std::move(values); }
  /// The next message tells how its losses were scaled, as tell_with_backward() has noted.
  void set_loss(EqualValues values) { loss_ = std::move(values); }

  void tell(std::int32_t* cells);
  /// Of ranks that are not out of step.
  void hear(const std::int32_t* sums, int participants);
  bool is_settled() const { return !exchange_.valid(); }
  void settle();
  /// As if nothing differed.
  void forget();

 private:
  std::vector<std::string> lines_of(Kind kind) const;
  void start_exchange(Kind kind);
  void hear_parameters(const std::int32_t* sums);
  void warn(const std::string& what) const;

  const Options options_;
  EqualValues optimizer_;
  EqualValues loss_;       ///< until it is told
  EqualValues told_loss_;  ///< in the last message
  // Of the parameters:
  std::int64_t messages_ = 0;  ///< heard
  std::int64_t since_ = 0;     ///< of these, after the last comparison
  std::int64_t interval_ = 1;  ///< between comparisons
  std::int64_t equal_at_ = 0;  ///< the message in which they were equal; 0: none
  bool is_due_;
  bool has_parted_ = false;
  // Under way:
  TensorWork exchange_;
  Kind differs_ = kOptimizer;
};

}  // namespace kolo
