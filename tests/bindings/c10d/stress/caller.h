// One thread's calls on one process group, with what each must leave in memory.
#pragma once

#include "tests/bindings/c10d/stress/call.h"
#include "tests/bindings/c10d/stress/place.h"
#include "tests/support/dice.h"
#include "tests/support/wrong.h"

#include <kolo/c10d.h>
#include <kolo/kolo.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

using Tensors = std::vector<torch::Tensor>;
using CallWork = c10::intrusive_ptr<c10d::Work>;

/// A call that was made, and its memory.
struct Begun {
  struct Check {
    std::shared_ptr<Place> place;
    torch::Tensor before;
    torch::Tensor after;

    bool is_input() const { return before.is_same(after); }
  };
  Call call;
  std::vector<CallWork> works = {};
  std::vector<std::shared_ptr<Work>> named = {};
  std::vector<Check> checks = {};
  /// Nobody waits: outputs may be written or not.
  bool forgotten = false;
  /// The call fails with kMismatch, and its outputs stay as they are.
  bool fails = false;

  /// Throws Wrong.
  void verify() const;
};

class Caller {
 public:
  /// `seed` is the same on all ranks, `own_seed` is not.
  Caller(const ProcessSet& set, std::uint64_t seed, std::uint64_t own_seed);

  /// Makes calls, waits for them in any order, and releases the group. Tells `note` each step.
  /// Throws Wrong, or the failure of a call.
  void run(int calls, const std::function<void(const std::string&)>& note);

 private:
  enum class Form { kAny, kAsIs, kContiguous };

  Begun begin(const Call& call);
  void begin_reduction(Begun& begun);
  void begin_gathering(Begun& begun);
  void begin_lists(Begun& begun);
  void begin_scatter(Begun& begun, const Tensors& placed);
  void begin_reduce_scatter(Begun& begun);
  void begin_alltoall_base(Begun& begun);
  void begin_alltoall(Begun& begun);
  void begin_message(Begun& begun);
  void begin_ordered(Begun& begun);
  void begin_named(Begun& begun);
  void call_refused(Begun& begun);
  std::vector<std::function<void()>> refused_calls(Begun& begun);

  torch::Tensor add(Begun& begun, const Part& part, const torch::Tensor& before,
                    const torch::Tensor& after, Form form = Form::kAny);
  torch::Tensor add_input(Begun& begun, const Part& part, const torch::Tensor& values,
                          Form form = Form::kAny);
  torch::Tensor add_output(Begun& begun, const Part& part, const torch::Tensor& values,
                           Form form = Form::kAny);
  c10d::ReduceOp op_of(const Call& call);
  bool is_root(const Call& call) const { return call.root == rank_; }

  /// Waits in some way, and verifies the result.
  void end(Begun& begun);
  void await(const CallWork& work);
  void wait_without_limit(const CallWork& work);
  void end_in_callback(const Begun& begun);
  /// Drops the call's handles.
  void drop(Begun begun);

  /// Groups on one set behave as one group.
  ProcessGroupKolo* group();
  void renew_group();

  const ProcessSet set_;
  std::vector<c10::intrusive_ptr<ProcessGroupKolo>> groups_;
  const std::vector<int> ranks_;  ///< ranks of the world
  const int rank_;                ///< rank in the group, as below
  const int size_;
  Dice shared_;
  Dice dice_;
  std::uint64_t names_;
  std::vector<Begun> open_;
  std::vector<Begun> dropped_;
};

}  // namespace kolo::test
