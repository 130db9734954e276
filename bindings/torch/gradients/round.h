// Round: what the ranks that share a reducer tell each other in each backward or step. A message of
// numbers is summed over the ranks; the comparison of their states travels in it.
//
//   Round round({.holder = "ShardedOptimizer", .kind = "sharded"});
//   round.tell("present", cells);                         // starts the message
//   const std::vector<std::int32_t> sums = round.hear();  // waits for that of all ranks
//   round.settle();                                       // later: throws or warns of a difference
//
// All ranks make their objects of one kind in the same order. Messages belong to the current step,
// so that messages of different steps never meet. One thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/state_comparison.h"
#include "bindings/torch/gradients/step_count.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/name_number.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kolo {

class Round {
 public:
  struct Options {
    std::string holder;  ///< class of the object, for errors
    std::string kind;    ///< the object's names begin with this word and a number
    ProcessSet process_set = {};
    /// As StateComparison::Options.
    std::function<NamedTensors()> parameters = nullptr;
    bool begins_equal = false;
    std::function<std::uint32_t()> trained = nullptr;
    /// What an error about different steps says of them.
    std::string steps = "";
  };
  /// Throws if kolo is not initialized.
  explicit Round(const Options& options);
  ~Round() { message_.drain(); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  /// The beginning of the names of all operations of the object.
  const std::string& prefix() const { return prefix_; }
  StepCount& step() { return step_; }
  StateComparison& comparison() { return comparison_; }

  void tell(const std::string& name, std::vector<std::int32_t> cells);
  bool is_told() const { return message_.valid(); }
  /// Waits. Returns the sums of the cells. Precondition: is_told().
  std::vector<std::int32_t> hear();
  /// Number of ranks in the last hear().
  int participants() const { return participants_; }
  /// Ends the comparison of the last message. Collective if there is a difference.
  void settle();
  /// Ends what is under way and forgets it.
  void drop();
  /// Continues from the highest step of any rank, and throws the error with what to do.
  [[noreturn]] void raise_out_of_step(const OutOfStep& error);

 private:
  const std::string holder_;
  const std::string steps_;
  const ProcessSet process_set_;
  const NameNumber number_;
  const std::string prefix_;
  StepCount step_;
  StateComparison comparison_;
  TensorWork message_;
  int participants_ = 0;
  FirstFailure failure_;  ///< what the comparison in hear() has thrown
};

}  // namespace kolo
