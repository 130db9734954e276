// The part of DistributedDataParallel that does not depend on the module's type: its options, its
// counters and the reducer itself. Users meet the options and the communication hook; the reducer
// is driven by DistributedDataParallel. One thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/replicas.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// On all ranks alike.
struct DdpOptions {
  /// Empty, or exactly the devices that the module's layers are on; or, for a module on one device,
  /// that one and others, on each of which a replica computes a part of the batch, as DataParallel
  /// does it.
  std::vector<torch::Device> device_ids = {};
  /// Where replicas' results are gathered; absent: on the first device. Without replicas absent, or
  /// the one device of the module.
  std::optional<torch::Device> output_device = std::nullopt;
  /// Gradients travel in groups of up to this many MiB; the first group of at most 1 MiB.
  double bucket_cap_mb = 25;
  /// Rank 0's buffers are copied to all at the start of each forward in training.
  bool broadcast_buffers = true;
  /// Some parameters may get no gradient on some rank or step.
  bool find_unused_parameters = false;
  /// Gradients live in the buckets' memory between steps, which ranks of a host share: nothing is
  /// copied as long as they stay defined (zero_grad(false)). The faster way, also with a copy each
  /// (docs/performance.md). The next backward writes there, zero_grad() or not: clone a gradient
  /// that is to be kept. Without it every gradient keeps the memory that autograd gives it.
  bool gradient_as_bucket_view = true;
  /// Every backward gives the same parameters as many gradients on this rank as the first one did,
  /// which counts them and sends its gradients at its end. For activation checkpointing, and, with
  /// unused parameters, cheaper than find_unused_parameters.
  bool static_graph = false;
  /// Ranks have different numbers of samples in a step: gradients of means over a rank's samples
  /// become that of the mean over all samples. set_sample_count() tells each rank's.
  bool weigh_by_samples = false;
};

/// Since the construction, on this rank.
struct DdpStats {
  std::int64_t synchronized_backwards = 0;
  std::int64_t bucket_bytes_written = 0;  ///< of gradients in buckets when these were started
  std::int64_t copied_bytes = 0;          ///< of these, copied there from elsewhere
  std::int64_t buckets = 0;               ///< now
  std::int64_t rebuilds = 0;              ///< of the buckets, in the order of readiness
};

/// A group of gradients whose last one is there.
struct GradBucket {
  std::size_t index = 0;
  std::string name;                       ///< the same on every rank, for an operation's name
  torch::Tensor buffer;                   ///< flat; this rank's gradients and gaps of zeros
  std::vector<torch::Tensor> gradients;   ///< each one's memory in `buffer`
  std::vector<torch::Tensor> parameters;  ///< whose gradients these are
  bool is_last = false;                   ///< of the buckets
};

/// Called on the thread of backward() for each bucket in place of the average. It starts what it
/// wants and returns what to call for the result: a tensor of the buffer's size and type, the
/// buffer itself for one. E.g.
///   [](const kolo::GradBucket& bucket) {
///     auto work = kolo::allreduce_async_(
///         bucket.buffer, {.op = kolo::ReduceOp::kAverage, .name = bucket.name});
///     return [work]() mutable { return work.wait(); };
///   }
using CommHook = std::function<std::function<torch::Tensor()>(const GradBucket&)>;

/// The replicas that `options` ask for; none where the module computes alone or is split over
/// devices. Precondition: a DdpReducer took the same options. Throws as Replicas's constructor.
KOLO_API std::optional<Replicas> make_replicas(const torch::nn::Module& module,
                                               const DdpOptions& options);
/// Throws kUnsupported: replicas of a module whose forward cannot be dealt out.
[[noreturn]] KOLO_API void raise_not_replicable(const torch::nn::Module& module);

class KOLO_API DdpReducer {
 public:
  /// As DistributedDataParallel's constructor.
  DdpReducer(NamedTensors parameters, NamedTensors buffers, const DdpOptions& options);
  /// Waits for what is under way.
  ~DdpReducer();
  DdpReducer(const DdpReducer&) = delete;
  DdpReducer& operator=(const DdpReducer&) = delete;

  /// Throws kInvalidArgument for a parameter that requires a gradient and was not there when this
  /// was made, or, in train(), had other sizes, another type or device then: after it has told the
  /// other ranks, whose backward() throws it, too. kMismatch after a backward that averaged
  /// nothing.
  void before_forward(const torch::nn::Module& module);
  /// Whether after_forward() would look at the outputs.
  bool wants_outputs() const;
  /// `complete`: these are all tensors of the outputs.
  void after_forward(const std::vector<torch::Tensor>& outputs, bool complete);

  /// Whether forwards from now on lead to backwards without communication; what it was before.
  bool set_local(bool local);
  /// With weigh_by_samples, on every rank before each backward that communicates: of how many
  /// samples this rank's loss, or all that it has accumulated in no_sync(), is the mean. A rank
  /// without any says 0 and makes the backward all the same, by any input: its gradients count as
  /// zeros. Throws kInvalidArgument for a negative number, and without the option.
  void set_sample_count(std::int64_t samples);
  /// Between two steps, on every rank. Throws kInvalidArgument for an empty hook or a second one.
  void register_comm_hook(CommHook hook);
  DdpStats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kolo
