// GradScaler: trains with float16, in which small gradients underflow. It multiplies the loss by a
// large scale and divides the gradients by it before the step. If gradients overflow, every rank
// skips the step, and the scale is halved. (Micikevicius et al., "Mixed Precision Training", ICLR
// 2018; the interface is that of PyTorch's GradScaler.)
//
//   kolo::GradScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);     // only to look at the gradients or
//   optimizer.clip_grad_norm(1.0);  // to clip them
//   scaler.step(optimizer);
//   scaler.update();
//
// - LibTorch's own optimizers have no clip_grad_norm(). Use torch::nn::utils::clip_grad_norm_() on
//   their parameters. Do not use it with a ShardedOptimizer, whose gradients are in its pieces: it
//   would clip nothing.
// - Ranks agree on an overflow without a message, because the scaler looks at gradients that are
//   already reduced. DistributedDataParallel has reduced them after backward(); for a
//   DistributedOptimizer the scaler waits for them. Inf and NaN survive a sum (inf - inf is NaN),
//   an average, Adasum and the narrower types of kolo::compression. So one rank's overflow appears
//   on every rank.
// - Set `extra_agreement`, which sends one element, if ranks hold different gradients. They do with
//   an optimizer for parameters of this rank alone, and with a communication hook or compression
//   whose results differ between ranks. An optimizer that keeps a share of the gradients on each
//   rank sends this message anyway.
// - Reductions by min or max hide an infinity in the same way on every rank. The step is then
//   taken.
// - Ranks compare the scale, its factors and the growth tracker. DistributedDataParallel and
//   DistributedOptimizer do so in the backward of a scaled loss, and throw kMismatch on all ranks
//   if they differ. unscale_() does so where it sends a message. A backward without a scaled loss,
//   as on a rank without a batch, does not count. kolo does not know the scale of gradients that
//   you reduce yourself.
// - Used by one thread at a time, in the same way on every rank.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstdint>
#include <map>
#include <optional>

namespace kolo {

class EqualValues;

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;             ///< above 1; scale factor after growth_interval steps
  double backoff_factor = 0.5;          ///< between 0 and 1; scale factor after an overflow
  std::int64_t growth_interval = 2000;  ///< steps in a row without an overflow
  bool enabled = true;                  ///< false: losses and steps are as without a scaler
  bool extra_agreement = false;         ///< see above; over `process_set`
  /// The ranks that agree. Default: those of an optimizer that reduces gradients itself, else all.
  std::optional<ProcessSet> process_set = {};
};

class KOLO_API GradScaler {
 public:
  /// Throws kInvalidArgument, with the value, for options outside their range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Applies a deferred update, then returns `loss` times the scale. A scalar of a half type is
  /// returned in float32.
  torch::Tensor scale(const torch::Tensor& loss);
  /// Like scale(), but keeps an update of update_later() deferred. Use it for a loss whose
  /// gradients are added to gradients that have the present scale.
  torch::Tensor scale_as_before(const torch::Tensor& loss);
  /// Divides the optimizer's gradients by the scale, once a step. First waits for the gradients of
  /// a DistributedOptimizer. Throws kInvalidArgument for a second call before update(), if there is
  /// no gradient, and for float16 gradients, because their division would lose what the scale has
  /// saved. Throws it, too, if this scaler has never scaled a loss: a rank whose first steps have
  /// no batch scales a loss of zero. Throws kMismatch if ranks differ, as above.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Calls unscale_() if that was not done, then the optimizer's step(), unless a gradient has
  /// overflowed. Returns whether the step was taken, the same on every rank. Not for LBFGS, whose
  /// step takes a closure.
  bool step(torch::optim::Optimizer& optimizer);
  /// Call it after the steps of all optimizers. Multiplies the scale by backoff_factor after an
  /// overflow, or by growth_factor after growth_interval steps without one. Throws kInvalidArgument
  /// without an earlier step() or unscale_().
  void update();
  /// Defers update() until the next loss is scaled, for a caller that does not know whether other
  /// optimizers use the same backward.
  void update_later();
  /// Sets the scale.
  void update(double scale);

  double scale_now() const { return enabled() ? scale_ : 1; }
  bool enabled() const { return options_.enabled; }
  /// Number of steps without an overflow since the scale changed.
  std::int64_t growth_tracker() const { return growth_tracker_; }

  /// Saves the scale, its factors and the tracker, for torch::save and torch::load. A deferred
  /// update is included.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Throws kInvalidArgument like the constructor; nothing changes then.
  void load(torch::serialize::InputArchive& archive);

 private:
  EqualValues values() const;

  struct Pass {
    bool unscaled = false;
    bool stepped = false;
    bool overflow = false;
  };

  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, Pass> passes_;  ///< since the last update()
  bool update_is_due_ = false;                             ///< update_later() was called
  bool has_scaled_ = false;                                ///< a loss, ever
};

/// E.g. torch::save(scaler, "scaler.pt").
KOLO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                     const GradScaler& scaler);
KOLO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                    GradScaler& scaler);

}  // namespace kolo
