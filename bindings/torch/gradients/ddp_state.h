// The state of a DdpReducer: gradients go into buckets, over the ranks, and back.
//
// A pass is one backward that communicates. It begins with the first gradient and ends before
// backward() returns, in three callbacks. Each queues the next: end_backward() submits what is
// left, hear() waits for it, settle() waits for what follows and throws failures. A backward inside
// another one (activation checkpointing) is part of the outer pass.
//
// ddp_reducer.cc has the forward side and the start of a pass, ddp_finish.cc its end: many short
// steps on one pass. Private to bindings/torch; threads as in BackwardRound.
#pragma once

#include "bindings/torch/gradients/backward_round.h"
#include "bindings/torch/gradients/buckets.h"
#include "bindings/torch/gradients/ddp_forwards.h"
#include "bindings/torch/gradients/sample_share.h"
#include "bindings/torch/tensors/device_stream.h"

#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/functions.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo {

struct DdpReducer::State final : BackwardRound {
  struct Parameter : AgreedTensor {
    explicit Parameter(AgreedTensor agreed) : AgreedTensor(std::move(agreed)) {}
    torch::Tensor zeros() const {
      return layout.fits(tensor) ? zero_gradient_of(tensor) : layout.zeros(layout.options());
    }

    /// Until the end of a pass.
    struct Pass {
      int received = 0;  ///< number of gradients
      bool ready = false;
      torch::Tensor earlier;  ///< the gradient from before, if this pass brings none
      torch::Tensor sent;     ///< tensor that travels, if the bucket has no memory
    };
    GradientHooks hooks;
    std::size_t bucket = 0;
    std::size_t position = 0;  ///< in the bucket
    bool touched = false;      ///< has received a gradient since the last pass ended
    bool is_made = true;       ///< the last backward made the gradient; else it existed before
    int expected = 1;          ///< gradients per pass; several if several inner backwards use it
    Pass pass;
  };
  struct Bucket {
    /// Until the end of a pass.
    struct Pass {
      std::size_t ready = 0;          ///< number of members that are ready
      bool incomplete = false;        ///< a member is missing
      ReadyStreams streams;           ///< on which the members were made
      std::vector<TensorWork> works;  ///< one, or one for each member if the bucket has no memory
      std::function<torch::Tensor()> result;  ///< from the hook
    };
    std::vector<std::size_t> members;  ///< indices of parameters
    std::string name;
    BucketMemory memory;  ///< with views or a hook; else each gradient travels from its own memory
    Pass pass;
  };

  /// How far a pass is from success. Only the end of the pass goes back.
  enum class Course : std::uint8_t {
    kNone,         ///< no pass
    kWhole,        ///< all is well so far
    kInterrupted,  ///< an exception has ended this rank's backward; the other ranks may not mind
    kRefused,      ///< a rank has told that it lacks or refuses a gradient
    kSevered,      ///< an operation has failed, so that all further ones of the pass fail
  };
  struct Pass {
    bool exists() const { return course != Course::kNone; }
    /// All is well, or at most as bad as `most`.
    bool is_up_to(Course most) const { return course <= most; }
    void worsen(Course to) { course = std::max(course, to); }

    Course course = Course::kNone;
    std::vector<std::size_t> received;  ///< while gradients are counted: their parameters, as they
                                        ///< came
    std::vector<std::size_t> order;     ///< parameters in the order in which they became ready
    std::vector<std::size_t> full;      ///< buckets that can start
    /// Expected gradients that did not come, by parameter. Separate bytes, because
    /// start_full_buckets() reads those of its bucket without the mutex.
    std::vector<std::uint8_t> missing;
    double weight = 1;           ///< weight of this rank's gradients in the average
    bool everyone = true;        ///< all ranks take part so far: no rank has joined
    std::exception_ptr failure;  ///< thrown at the end
    TensorWork all_missing;      ///< table by rank, once some rank lacks or refuses a gradient
    TensorWork first_order;      ///< rank 0's order of readiness
  };

  /// Collective.
  State(const NamedTensors& named, const NamedTensors& named_buffers, const DdpOptions& given);

  const DdpOptions options;
  std::vector<Parameter> parameters;
  /// The module's parameters when the reducer was made, and whether they are reduced.
  std::unordered_map<const void*, bool> listed;
  std::vector<AgreedTensor> buffers;
  std::vector<Bucket> buckets;
  CommHook hook;
  SampleShare samples;  ///< with weigh_by_samples
  DdpStats stats;
  // The mutex guards all members below. It is not held while a bucket starts: a user's hook may
  // wait for other ranks, which may first submit gradients of another device.
  ForwardWindow forwards;
  /// With static_graph, after the first pass: number of ranks with a gradient, by parameter.
  std::vector<std::int64_t> users;
  std::vector<bool> never_used;  ///< then: parameters that this rank does not use
  Pass pass;

  /// The first pass of a static graph. Nothing is sent before its end: with activation
  /// checkpointing a parameter may get several gradients, one from each recomputed part of the
  /// module.
  bool counts() const { return options.static_graph && users.empty(); }
  /// Unused parameters are searched in each pass, rather than known or an error.
  bool searches() const {
    return options.static_graph ? users.empty() : options.find_unused_parameters;
  }
  std::string full_name(std::size_t index) const override {
    return round.prefix() + "gradient/" + parameters[index].name;
  }
  NamedTensors reduced() const;
  std::vector<std::string> names_in(const Bucket& bucket) const;
  void build(const std::vector<std::size_t>& in_order);
  BucketMemory memory_for(const std::vector<std::size_t>& members) const;

  void before_accumulation(std::size_t index) override;
  void after_accumulation(std::size_t index) override;
  void end_local_backward();
  /// A backward that reaches one of these outputs communicates.
  void communicate_behind(const std::vector<torch::Tensor>& outputs);
  /// The error for a parameter that requires a gradient and is unknown to this reducer; or nothing.
  std::string unknown_in(const torch::nn::Module& module) const;
  /// Throws kInvalidArgument for a parameter that differs from its agreed layout.
  static void check_unchanged(const Parameter& parameter);

  /// Forwards whose outputs were dropped before a backward count as steps. The other ranks, which
  /// have dropped none, are then behind.
  void begin_pass();
  void hear_samples();
  /// Every parameter is ready.
  bool is_whole() const {
    return std::all_of(parameters.begin(), parameters.end(),
                       [](const Parameter& parameter) { return parameter.pass.ready; });
  }
  void mark_ready(std::size_t index, bool has_new);
  /// At the end of a counting pass: marks the received gradients as ready.
  void mark_received();
  /// Marks parameters without a gradient as ready; `is_error` if every step must use all.
  void mark_rest(bool is_error);
  void put_gradient(Parameter& parameter, bool has_new);
  void start_full_buckets();
  void start(std::size_t bucket);
  TensorWork send(Parameter& parameter);
  void weigh(const torch::Tensor& gradients) const;
  /// An exception of the user's hook ends communication on all ranks.
  void call_hook(const Bucket& bucket, const std::function<void()>& call);

  void end_backward() override;
  void hear();
  void settle();
  /// The work of hear(): waits for all operations, and learns what the other ranks lack.
  void take_results();
  /// Tells the other ranks which parameters are used (if searched), whether this rank lacks or has
  /// refused a gradient, and values that must be equal on all.
  void tell();
  /// Waits for tell(). Returns, by parameter, the number of ranks with a gradient since the last
  /// pass; empty if unknown.
  std::vector<std::int64_t> hear_users();
  void await_buckets();
  /// After the first good pass: rank 0 tells the order in which its parameters became ready.
  void propose_order();
  void write_back(const std::vector<std::int64_t>& counts);
  void rebuild();
  /// Ends what is under way, and forgets the pass.
  void reset_pass();

  /// Ends a pass whose backward has ended by an exception, perhaps on this rank alone, together
  /// with all other reducers of that backward. The other ranks' gradients of this pass meet this
  /// rank's report of the interruption, not its gradients of the next pass. Sets gradients to zero.
  /// Does not throw.
  void end_interrupted();
  void tell_interrupted();
  /// Makes a pass in which this rank refuses all gradients and tells the others; throws `why`.
  [[noreturn]] void refuse_pass(const std::exception_ptr& why);

  template <class Action>
  bool attempt(Action&& action) {
    try {
      action();
      return true;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!pass.failure) pass.failure = std::current_exception();
      return false;
    }
  }
  /// For an action that all ranks do together.
  template <class Action>
  void attempt_together(Action&& action) {
    const auto in_step = [&] {
      try {
        action();
      } catch (const OutOfStep& error) {
        round.raise_out_of_step(error);
      }
    };
    if (attempt([&] { abort_on_timeout(in_step, "DistributedDataParallel"); })) return;
    const std::lock_guard lock(mutex);
    pass.worsen(Course::kSevered);
  }
};

}  // namespace kolo
