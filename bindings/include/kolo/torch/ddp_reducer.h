// The part of DistributedDataParallel that does not depend on the module's type: its options, its
// counters and the reducer. Users see the options and the communication hook.
// DistributedDataParallel drives the reducer, by one thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/replicas.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// Options of DistributedDataParallel, the same on all ranks.
struct DdpOptions {
  /// Empty, or exactly the devices of the module's layers. For a module on one device: that device
  /// and others. Each then has a replica that computes a part of the batch, as in DataParallel.
  std::vector<torch::Device> device_ids = {};
  /// Device where the replicas' results are gathered. Absent: the first device. Without replicas:
  /// absent, or the one device of the module.
  std::optional<torch::Device> output_device = std::nullopt;
  /// Gradients travel in buckets of up to this many MiB. The first bucket has at most 1 MiB.
  double bucket_cap_mb = 25;
  /// Copies rank 0's buffers to all ranks at the start of each forward in training.
  bool broadcast_buffers = true;
  /// Set it if some parameters get no gradient on some rank or step.
  bool find_unused_parameters = false;
  /// Keeps gradients in the memory of the buckets between steps, which ranks of a host share.
  /// Nothing is copied as long as the gradients stay defined (zero_grad(false)). It is the faster
  /// way, also when each gradient is copied (docs/measurements.md). The next backward overwrites
  /// this memory, with or without zero_grad(), so clone a gradient that you keep. false: every
  /// gradient keeps the memory that autograd gives it.
  bool gradient_as_bucket_view = true;
  /// Promises that every backward gives each parameter as many gradients on this rank as the first
  /// one did. The first backward counts the gradients and sends them at its end. Use it for
  /// activation checkpointing. With unused parameters it costs less than find_unused_parameters.
  bool static_graph = false;
  /// Set it if ranks have different numbers of samples in a step. Gradients of means over one
  /// rank's samples then become the gradient of the mean over all samples. Each rank calls
  /// set_sample_count().
  bool weigh_by_samples = false;
};

/// Counts since construction, on this rank.
struct DdpStats {
  std::int64_t synchronized_backwards = 0;
  std::int64_t bucket_bytes_written = 0;  ///< bytes in buckets when these started
  std::int64_t copied_bytes = 0;          ///< bytes of these that were copied there from elsewhere
  std::int64_t buckets = 0;               ///< present number of buckets
  std::int64_t rebuilds = 0;  ///< how often the buckets were rebuilt, in the order of readiness
};

/// A group of gradients that is complete.
struct GradBucket {
  std::size_t index = 0;
  std::string name;                       ///< name for an operation, the same on every rank
  torch::Tensor buffer;                   ///< flat; this rank's gradients and gaps of zeros
  std::vector<torch::Tensor> gradients;   ///< views of `buffer`, one for each gradient
  std::vector<torch::Tensor> parameters;  ///< the parameters of these gradients
  bool is_last = false;                   ///< the last bucket of the backward
};

/// Called for each bucket in place of the average, on the thread of backward(). It starts the
/// communication and returns a function that kolo calls for the result. The result is a tensor of
/// the buffer's size and type, for instance the buffer itself:
///
///   [](const kolo::GradBucket& bucket) {
///     auto work = kolo::allreduce_async_(
///         bucket.buffer, {.op = kolo::ReduceOp::kAverage, .name = bucket.name});
///     return [work]() mutable { return work.wait(); };
///   }
using CommHook = std::function<std::function<torch::Tensor()>(const GradBucket&)>;

/// The replicas that `options` ask for. None if the module computes alone or is split over devices.
/// Precondition: a DdpReducer accepted the same options. Throws what the constructor of Replicas
/// throws.
KOLO_API std::optional<Replicas> make_replicas(const torch::nn::Module& module,
                                               const DdpOptions& options);
/// Throws kUnsupported: the arguments or results of the module's forward cannot be split over
/// replicas.
[[noreturn]] KOLO_API void raise_not_replicable(const torch::nn::Module& module);

/// Averages the gradients of a module's parameters over the ranks. DistributedDataParallel makes
/// these calls:
///
///   kolo::DdpReducer reducer(network->named_parameters().pairs(),
///                            network->named_buffers().pairs(), {});
///   reducer.before_forward(*network);
///   torch::Tensor output = network->forward(input);
///   if (reducer.wants_outputs()) reducer.after_forward({output}, /*complete=*/true);
class KOLO_API DdpReducer {
 public:
  /// Behaves and throws as the constructor of DistributedDataParallel.
  DdpReducer(NamedTensors parameters, NamedTensors buffers, const DdpOptions& options);
  /// Waits for operations in flight.
  ~DdpReducer();
  DdpReducer(const DdpReducer&) = delete;
  DdpReducer& operator=(const DdpReducer&) = delete;

  /// Throws kInvalidArgument for a parameter that requires a gradient and is new since
  /// construction. In train() it also throws for a parameter whose sizes, type or device have
  /// changed. It first informs the other ranks, whose backward() throws the same. Throws kMismatch
  /// after a backward that averaged nothing.
  void before_forward(const torch::nn::Module& module);
  /// Whether after_forward() needs the outputs.
  bool wants_outputs() const;
  /// `complete`: `outputs` has all tensors of the forward's result.
  void after_forward(const std::vector<torch::Tensor>& outputs, bool complete);

  /// Sets whether backwards of later forwards stay without communication. Returns the previous
  /// value.
  bool set_local(bool local);
  /// With weigh_by_samples, every rank calls it before each backward that communicates. `samples`
  /// is the number of samples over which this rank's loss is a mean, including what it has
  /// accumulated in no_sync(). A rank without samples passes 0 and still makes the backward, with
  /// any input; its gradients count as zeros. Throws kInvalidArgument for a negative number, and
  /// without the option.
  void set_sample_count(std::int64_t samples);
  /// Call it between two steps, on every rank. Throws kInvalidArgument for an empty hook and for a
  /// second one.
  void register_comm_hook(CommHook hook);
  DdpStats stats() const;

  /// As WorldMember's. Counters begin anew.
  void leave_world();
  void enter_world();

 private:
  struct State;
  void begin();
  void end();
  void install_hook();

  const NamedTensors parameters_;
  const NamedTensors buffers_;
  const DdpOptions options_;
  CommHook hook_;
  std::shared_ptr<State> state_;  ///< null between two worlds
};

}  // namespace kolo
