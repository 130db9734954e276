// GradScaler: trains with float16, whose smallest numbers small gradients fall below. The loss is
// multiplied by a large scale, the gradients are divided by it before the step; a step whose
// gradients have overflowed is left out on every rank, and the scale is halved. (Micikevicius et
// al., "Mixed Precision Training", ICLR 2018; the interface is that of PyTorch's GradScaler.)
//
//   kolo::GradScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);     // only to look at the gradients or
//   optimizer.clip_grad_norm(1.0);  // to clip them
//   scaler.step(optimizer);
//   scaler.update();
//
// An optimizer of LibTorch's own has no clip_grad_norm(): torch::nn::utils::clip_grad_norm_() takes
// its parameters' gradients. Not those of a ShardedOptimizer, which are in its pieces: for it that
// would clip nothing.
//
// Ranks agree on an overflow without a message of their own: it is looked for in gradients that
// are reduced already, those of DistributedDataParallel after backward(), those of a
// DistributedOptimizer here. Inf and NaN survive a sum (inf - inf is NaN), an average, Adasum and
// the narrower types of kolo::compression, so that one rank's overflow is every rank's. Where ranks
// hold different gradients that does not follow, and `extra_agreement` takes a message of one
// element: with an optimizer of parameters of this rank alone, or a communication hook or
// compression that gives ranks different results. With an optimizer that keeps a share of
// gradients by rank that is done anyway. Reductions by min or max hide an infinity, alike on every
// rank: the step is then taken.
//
// Ranks compare the scale, its factors and the tracker: a DistributedDataParallel or
// DistributedOptimizer in the backward of a scaled loss, which throws kMismatch on all ranks where
// they differ; unscale_() where it takes a message. A backward without a scaled loss, as of a rank
// without a batch, does not count. Of gradients that you reduce yourself nobody knows the scale.
//
// Used by one thread at a time, alike on every rank.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <optional>

namespace kolo {

class EqualValues;

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;             ///< above 1; times the scale after growth_interval steps
  double backoff_factor = 0.5;          ///< between 0 and 1; times the scale after an overflow
  std::int64_t growth_interval = 2000;  ///< steps in a row without an overflow
  bool enabled = true;                  ///< false: losses and steps are as without a scaler
  bool extra_agreement = false;         ///< see above; over `process_set`
  /// The ranks that agree. Default: those of an optimizer that reduces gradients itself, else all.
  std::optional<ProcessSet> process_set = {};
};

class KOLO_API GradScaler {
 public:
  /// Throws kInvalidArgument for options out of their range, with the value.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale, after an update that was put off; in float32 if it is a scalar of a
  /// half type.
  torch::Tensor scale(const torch::Tensor& loss);
  /// The same, but what update_later() has put off stays so: for a loss whose gradients are added
  /// to some that have the present scale.
  torch::Tensor scale_as_before(const torch::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale, once a step; waits for those of a
  /// DistributedOptimizer first. Throws kInvalidArgument for a second call before update(), for
  /// float16 gradients, whose division would lose what the scale has saved, and where there is no
  /// gradient at all; kMismatch where ranks differ, as above.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// unscale_() if that was not called, then the optimizer's step() unless a gradient has
  /// overflowed. Returns whether it was taken, the same on every rank. Not for LBFGS, whose step
  /// takes a closure.
  bool step(torch::optim::Optimizer& optimizer);
  /// After the steps of all optimizers: halves or doubles the scale. Throws kInvalidArgument
  /// without a step() or unscale_() before.
  void update();
  /// update() when the next loss is scaled: for a caller who does not know whether other optimizers
  /// step by the same backward.
  void update_later();
  /// Sets the scale.
  void update(double scale);

  double scale_now() const { return enabled() ? scale_ : 1; }
  bool enabled() const { return options_.enabled; }
  /// Steps without an overflow since the scale changed.
  std::int64_t growth_tracker() const { return growth_tracker_; }

  /// The scale, its factors and the tracker, for torch::save and torch::load; as they are after an
  /// update that was put off.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Throws kInvalidArgument as the constructor does; nothing is changed then.
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
  bool update_is_due_ = false;                             ///< as update_later()
};

/// E.g. torch::save(scaler, "scaler.pt").
KOLO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                     const GradScaler& scaler);
KOLO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                    GradScaler& scaler);

}  // namespace kolo
