// The state of a DdpReducer: gradients go into buckets, over the ranks, and back.
//
// A pass is one backward that communicates. It begins with the first gradient and ends before
// backward() returns, in three callbacks. Each queues the next: end_backward() submits what is
// left, hear() waits for it, settle() waits for what follows and throws failures. A backward may
// reach several reducers, on each rank in another order; this way all have submitted before one
// waits. A backward inside another one (activation checkpointing) is part of the outer pass.
//
// ddp_reducer.cc has the forward side and the start of a pass, ddp_finish.cc its end. Gradients
// arrive on autograd's thread of each device that the module is on, under the mutex. All else runs
// on the training loop's thread. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/ddp_buckets.h"
#include "bindings/torch/gradients/ddp_graph.h"
#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/gradients/sample_share.h"
#include "bindings/torch/gradients/state_comparison.h"
#include "bindings/torch/gradients/step_count.h"
#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/name_number.h"

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
    bool touched = false;      ///< has received a gradient since the last pass ended
    bool is_made = true;       ///< the last backward made the gradient; else it existed before
    int expected = 1;          ///< gradients per pass; several if several inner backwards use it
    // During a pass:
    int received = 0;  ///< number of gradients
    bool ready = false;
    torch::Tensor earlier;  ///< the gradient from before, if this pass brings none
    torch::Tensor sent;     ///< tensor that travels, if the bucket has no memory
    TensorWork work;        ///< its all-reduce, if the bucket has no memory
  };
  struct Bucket {
    std::vector<std::size_t> members;  ///< indices of parameters
    std::string name;
    BucketMemory memory;  ///< with views or a hook; else each gradient travels from its own memory
    // During a pass:
    std::size_t waiting = 0;  ///< number of members that are not ready
    bool incomplete = false;  ///< a member is missing
    ReadyStreams ready;       ///< streams on which the members were made
    TensorWork work;
    std::function<torch::Tensor()> result;  ///< from the hook
  };

  /// A forward that leads to a pass.
  struct Forward {
    enum class Result : std::uint8_t {
      kNone,     ///< so far: it has thrown or returns nothing, which is the same on all ranks
      kKnown,    ///< `outputs`
      kUnknown,  ///< no output has a gradient, or its type is not searched
    };
    Result result = Result::kNone;
    std::vector<WeakNode> outputs = {};

    void take(const std::vector<torch::Tensor>& tensors, bool complete);
    /// No backward can go through this forward any more.
    bool is_dropped() const;
  };

  DdpOptions options;
  NameNumber number;
  std::string prefix;
  std::vector<Parameter> parameters;
  /// The module's parameters when the reducer was made, and whether they are reduced.
  std::unordered_map<const void*, bool> listed;
  std::vector<AgreedTensor> buffers;
  std::vector<Bucket> buckets;
  CommHook hook;
  SampleShare share;  ///< with weigh_by_samples
  DdpStats stats;
  std::optional<StateComparison> comparison;  ///< compares what passes tell besides gradients

  /// Guards all members below. Recursive, for attempt(). Not held while a bucket starts: a user's
  /// hook may wait for other ranks, which may first submit gradients of another device.
  std::recursive_mutex mutex;
  StepCount step;                 ///< counts passes, and forwards that were left without a backward
  std::vector<Forward> forwards;  ///< in training since the last pass
  bool in_forward = false;        ///< within the last of `forwards`
  bool local = false;             ///< inside no_sync()
  bool next_local = false;        ///< the next backward does not communicate
  bool local_is_over = false;     ///< after a local backward: only no_sync() makes the next local
  int local_graph = -1;           ///< autograd's graph task of the local backward
  bool in_eval = false;           ///< the last forward was in eval() mode, outside of no_sync()
  bool any_in_eval = false;       ///< as in_eval, since the last pass
  bool owes_pass = false;  ///< a forward in train() mode since the last pass was outside no_sync()
  Leaves leaves;           ///< leaves of the forwards since the last pass
  bool leaves_known = false;
  bool leaves_partial = false;      ///< some output has a type whose tensors are not known
  std::vector<std::int64_t> users;  ///< with static_graph: number of ranks with a gradient, by
                                    ///< parameter
  std::vector<bool> never_used;     ///< with static_graph: parameters that this rank does not use

  bool in_pass = false;
  std::vector<int> graphs;  ///< autograd's graph tasks that brought gradients of this pass
  std::vector<std::size_t> received;  ///< while gradients are counted: their parameters, as they
                                      ///< came
  std::vector<std::size_t> order;     ///< parameters in the order in which they became ready
  std::vector<std::size_t> full;      ///< buckets that can start
  /// Expected gradients that did not come, by parameter. Separate bytes, because
  /// start_full_buckets() reads those of its bucket without the mutex.
  std::vector<std::uint8_t> missing;
  bool some_failed = false;    ///< a rank has told that it lacks or refuses a gradient
  bool everyone = true;        ///< all ranks take part so far: no rank has joined
  std::exception_ptr failure;  ///< first one in this pass, thrown at its end
  bool severed = false;        ///< an operation failed, so all further ones of this pass fail
  bool interrupted = false;    ///< by an exception on this rank
  // At the end of this pass:
  TensorWork agreement;    ///< the operation of tell()
  TensorWork all_missing;  ///< table by rank, once some rank lacks or refuses a gradient
  TensorWork first_order;  ///< rank 0's order of readiness

  /// The first pass of a static graph. Nothing is sent before its end: with activation
  /// checkpointing a parameter may get several gradients, one from each recomputed part of the
  /// module.
  bool counts() const { return options.static_graph && users.empty(); }
  /// Unused parameters are searched in each pass, rather than known or an error.
  bool searches() const {
    return options.static_graph ? users.empty() : options.find_unused_parameters;
  }
  /// Whether the leaves of a forward's outputs are needed to find unused parameters.
  bool wants_leaves() const {
    return (!next_local || any_in_eval) && options.find_unused_parameters && !options.static_graph;
  }
  std::string full_name(std::size_t index) const override {
    return prefix + "gradient/" + parameters[index].name;
  }

  bool is_local() const { return next_local && (local || !local_is_over); }
  void end_local_backward();
  /// A backward that reaches one of these outputs belongs to a forward outside of no_sync().
  void synchronize_behind(const std::vector<torch::Tensor>& outputs);

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  void build(const std::vector<std::size_t>& in_order);
  /// Waits for operations that an interrupted pass has left under way, and forgets the pass.
  void abandon();
  /// Ends a pass whose backward has ended by an exception, perhaps on this rank alone, together
  /// with all other reducers of that backward. The other ranks' gradients of this pass meet this
  /// rank's report of the interruption, not its gradients of the next pass. Sets gradients to zero.
  /// Does not throw.
  void end_interrupted();
  void tell_interrupted();
  std::vector<std::shared_ptr<State>> of_this_backward();
  /// Records that the pass has gradients of this graph task of autograd.
  void enter(int graph);
  void leave();
  void reset_pass();

  /// The error for a parameter that requires a gradient and is unknown to this reducer; or nothing.
  std::string unknown_in(const torch::nn::Module& module) const;
  /// Throws kInvalidArgument for a parameter that differs from its agreed layout.
  static void check_unchanged(const Parameter& parameter);
  /// Makes a pass in which this rank refuses all gradients and tells the others; throws `why`.
  [[noreturn]] void refuse_pass(const std::exception_ptr& why);

  /// Forwards whose outputs were dropped before a backward count as steps. The other ranks, which
  /// have dropped none, are then behind.
  void begin_pass();
  /// Every parameter is ready.
  bool is_whole() const {
    return std::all_of(parameters.begin(), parameters.end(),
                       [](const Parameter& parameter) { return parameter.ready; });
  }
  /// Ends the pass at the end of the backward that runs on this thread.
  void follow_backward();
  void mark_ready(std::size_t index, bool has_new);
  /// At the end of a counting pass: marks the received gradients as ready.
  void mark_received();
  void start_full_buckets();
  void put_gradient(Parameter& parameter, bool has_new);
  void start(std::size_t bucket);
  void send(Parameter& parameter);
  /// An exception of the user's hook ends communication on all ranks.
  void call_hook(const Bucket& bucket, const std::function<void()>& call);

  void end_backward();
  void hear();
  void settle();
  /// The work of hear(): waits for all operations, and learns what the other ranks lack.
  void take_results();
  /// Calls `next` at the end of the current backward. Called from a callback of that backward.
  void queue(void (State::*next)());
  void drain_agreements();
  std::vector<std::string> names() const;
  NamedTensors reduced() const;
  /// Marks parameters without a gradient as ready; `is_error` if every step must use all.
  void mark_rest(bool is_error);
  /// Tells the other ranks which parameters are used (if searched), whether this rank lacks or has
  /// refused a gradient, and values that must be equal on all.
  void tell();
  /// Waits for tell(). Returns, by parameter, the number of ranks with a gradient since the last
  /// pass; empty if unknown.
  std::vector<std::int64_t> hear_users();
  void await_buckets();
  /// Waits, and notes whether all ranks take part.
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
  /// For an action that all ranks do together.
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
