// The state of a DdpReducer: the gradients' way into buckets, over the ranks, and back. A pass is
// one backward that communicates: it begins with the first gradient and ends, before backward()
// returns, in callbacks: end_backward() submits what is left, hear() waits for it, settle() for
// what follows from it, and throws what has failed. Each queues the next, so that of several
// reducers that a backward reaches, on ranks in an order of their own, perhaps, all have submitted
// before one waits. A backward inside another one, as activation checkpointing makes it, is a part
// of it. ddp_reducer.cc has what happens outside of a pass and the way in, ddp_finish.cc the end of
// a pass. Gradients come on a thread for each device that the module is on (autograd's), under the
// mutex; all else is the training loop's. Private to bindings/torch.
#pragma once

#include "bindings/torch/ddp_buckets.h"
#include "bindings/torch/ddp_graph.h"
#include "bindings/torch/device_stream.h"
#include "bindings/torch/failure.h"
#include "bindings/torch/gradient_hooks.h"
#include "bindings/torch/name_number.h"
#include "bindings/torch/sample_share.h"
#include "bindings/torch/state_comparison.h"
#include "bindings/torch/step_count.h"

#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/functions.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo {

struct DdpReducer::State final : GradientListener, std::enable_shared_from_this<DdpReducer::State> {
  struct Parameter : AgreedTensor {
    explicit Parameter(AgreedTensor agreed) : AgreedTensor(std::move(agreed)) {}

    GradientHooks hooks;
    std::size_t bucket = 0;
    std::size_t position = 0;  ///< in the bucket
    bool touched = false;      ///< has got a gradient since the last pass ended
    bool is_made = true;       ///< the gradient, by the last backward; else it was there before
    int expected = 1;          ///< gradients in a pass; several if it is in several inner backwards
    // During a pass:
    int received = 0;  ///< gradients
    bool ready = false;
    torch::Tensor earlier;  ///< the gradient from before, where this pass brings none
    torch::Tensor sent;     ///< what travels, in a bucket without memory
    TensorWork work;        ///< its way, in a bucket without memory
  };
  struct Bucket {
    std::vector<std::size_t> members;  ///< indices of parameters
    std::string name;
    BucketMemory memory;  ///< with views or a hook; else each gradient travels from where it is
    // During a pass:
    std::size_t waiting = 0;  ///< members that are not ready
    bool incomplete = false;  ///< a member is missing
    ReadyStreams ready;       ///< which the members were made on
    TensorWork work;
    std::function<torch::Tensor()> result;  ///< from the hook
  };

  /// One that leads to a pass.
  struct Forward {
    enum class Result : std::uint8_t {
      kNone,     ///< so far: it has thrown, or returns nothing, which all ranks count alike
      kKnown,    ///< `outputs`
      kUnknown,  ///< none that has a gradient, or of a type that is not looked into
    };
    Result result = Result::kNone;
    std::vector<WeakNode> outputs = {};

    void take(const std::vector<torch::Tensor>& tensors, bool complete);
    /// No backward can go through it any more.
    bool is_dropped() const;
  };

  DdpOptions options;
  NameNumber number;
  std::string prefix;
  std::vector<Parameter> parameters;
  /// The module's parameters when this was made, and whether they are reduced.
  std::unordered_map<const void*, bool> listed;
  std::vector<AgreedTensor> buffers;
  std::vector<Bucket> buckets;
  CommHook hook;
  SampleShare share;  ///< with weigh_by_samples
  DdpStats stats;
  std::optional<StateComparison> comparison;  ///< what passes tell besides gradients

  /// Of what follows. Recursive, for attempt(). Not held while a bucket starts: a user's hook may
  /// wait there for other ranks, which may come with another device's gradients first.
  std::recursive_mutex mutex;
  StepCount step;                 ///< of passes, and of forwards that were left without a backward
  std::vector<Forward> forwards;  ///< in training since the last pass
  bool in_forward = false;        ///< in the last of these
  bool local = false;             ///< inside no_sync()
  bool next_local = false;        ///< the next backward is this rank's alone
  bool local_is_over = false;  ///< such a backward was made: the next is so within no_sync() alone
  int local_graph = -1;        ///< autograd's graph task of such a backward
  bool in_eval = false;        ///< the last forward was one in eval(), outside of no_sync()
  bool any_in_eval = false;    ///< since the last pass
  bool owes_pass = false;  ///< a forward in train() since the last pass was not inside no_sync()
  Leaves leaves;           ///< of the forwards since the last pass
  bool leaves_known = false;
  bool leaves_partial = false;      ///< some output has tensors that are not known
  std::vector<std::int64_t> users;  ///< with static_graph: ranks with a gradient, by parameter
  std::vector<bool> never_used;     ///< with static_graph: on this rank, by parameter

  bool in_pass = false;
  std::vector<int> graphs;  ///< which gradients of this pass came in: autograd's graph tasks
  std::vector<std::size_t> received;  ///< while they are counted: whose gradients, as they came
  std::vector<std::size_t> order;     ///< of readiness in this pass
  std::vector<std::size_t> full;      ///< buckets that can start
  /// Gradients that should be there, by parameter. Each in memory of its own: start_full_buckets()
  /// reads what belongs to its bucket without the mutex.
  std::vector<std::uint8_t> missing;
  bool some_failed = false;    ///< a rank has told that it misses or has refused a gradient
  bool everyone = true;        ///< takes part, so far: no rank has joined
  std::exception_ptr failure;  ///< of this pass, thrown at its end
  bool severed = false;        ///< an operation failed, hence all further ones of this pass
  bool interrupted = false;    ///< by an exception, here
  // At the end of this pass:
  TensorWork agreement;    ///< what tell() tells
  TensorWork all_missing;  ///< by rank, once some rank lacks or refuses a gradient
  TensorWork first_order;  ///< rank 0's order of readiness

  /// The first pass of a static graph: nothing is sent before its end, for a parameter may get
  /// several gradients, one of each part of the module in which it is computed anew (activation
  /// checkpointing).
  bool counts() const { return options.static_graph && users.empty(); }
  /// Unused parameters are found in each pass, not known and not an error.
  bool searches() const {
    return options.static_graph ? users.empty() : options.find_unused_parameters;
  }
  /// Of a forward's outputs: to find unused parameters.
  bool wants_leaves() const {
    return (!next_local || any_in_eval) && options.find_unused_parameters && !options.static_graph;
  }
  std::string full_name(std::size_t index) const override {
    return prefix + "gradient/" + parameters[index].name;
  }

  bool is_local() const { return next_local && (local || !local_is_over); }
  void end_local_backward();
  /// The backward that comes to one of these outputs has a forward outside of no_sync().
  void synchronize_behind(const std::vector<torch::Tensor>& outputs);

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  void build(const std::vector<std::size_t>& in_order);
  /// Waits for what an interrupted pass has left under way, and forgets the pass.
  void abandon();
  /// Of a pass whose backward has ended by an exception, perhaps on this rank alone: the others'
  /// gradients of it meet this rank's word of that, not its gradients of the next pass. With all
  /// other reducers of that backward. Gradients are zero then. Throws nothing.
  void end_interrupted();
  void tell_interrupted();
  std::vector<std::shared_ptr<State>> of_this_backward();
  /// The pass has gradients of that graph task of autograd.
  void enter(int graph);
  void leave();
  void reset_pass();

  /// Which parameter requires a gradient and has no place here, or nothing.
  std::string unknown_in(const torch::nn::Module& module) const;
  /// Throws kInvalidArgument for one that is not what the ranks have agreed on.
  static void check_unchanged(const Parameter& parameter);
  /// A pass of which this rank refuses all gradients, as it tells the others; throws it.
  [[noreturn]] void refuse_pass(const std::exception_ptr& why);

  /// Forwards whose outputs were dropped before a backward, as where a rank leaves a batch out,
  /// count as steps: the other ranks, which have left none out, are behind then.
  void begin_pass();
  /// Every parameter's turn is over.
  bool is_whole() const {
    return std::all_of(parameters.begin(), parameters.end(),
                       [](const Parameter& parameter) { return parameter.ready; });
  }
  /// Ends the pass with the backward that is under way on this thread.
  void follow_backward();
  void mark_ready(std::size_t index, bool has_new);
  /// At the end of the pass in which gradients are counted: those that came are ready.
  void mark_received();
  void start_full_buckets();
  void place(Parameter& parameter, bool has_new);
  void start(std::size_t bucket);
  void send(Parameter& parameter);
  /// What the user's hook throws ends on all ranks.
  void call_hook(const Bucket& bucket, const std::function<void()>& call);

  void end_backward();
  void hear();
  void settle();
  /// What hear() does: waits for all that is under way, and learns what the others miss.
  void take_results();
  /// Calls `next` at the end of the backward whose callback this is.
  void queue(void (State::*next)());
  void drain_agreements();
  std::vector<std::string> names() const;
  NamedTensors reduced() const;
  /// Those without a gradient count as ready; as an error, where not every step uses all.
  void mark_rest(bool is_error);
  /// Tells the others who uses what, if a search is on, whether this rank lacks or has refused a
  /// gradient, and what must be equal on all.
  void tell();
  /// What they tell: by parameter, on how many ranks it has got a gradient since the last pass;
  /// empty if unknown.
  std::vector<std::int64_t> hear_users();
  void await_buckets();
  /// Waits, and notes whether everyone takes part.
  torch::Tensor await(TensorWork& work);
  void write_back(const std::vector<std::int64_t>& counts);
  void tell_order();
  void rebuild();
  template <class Action>
  bool attempt(Action&& action) {
    try {
      action();
      return true;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      return false;
    }
  }
  [[noreturn]] void raise_out_of_step(const OutOfStep& error);
  /// For what all ranks do together.
  template <class Action>
  void attempt_together(Action&& action) {
    const auto in_step = [&] {
      try {
        action();
      } catch (const OutOfStep& error) {
        raise_out_of_step(error);
      }
    };
    if (attempt([&] { abort_on_timeout(in_step, "DistributedDataParallel"); })) return;
    const std::lock_guard lock(mutex);
    severed = true;
  }
};

}  // namespace kolo
