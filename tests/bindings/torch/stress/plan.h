// A random training that all ranks draw from one seed: networks, what reduces their gradients and
// how, and the events of each step. Pure.
#pragma once

#include "tests/support/dice.h"

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::test {

/// Kind of a layer; every layer maps rows of kFeatures numbers to rows of that size.
enum class LayerKind : std::uint8_t {
  kLinear,
  kWide,        ///< two linear layers with many units between them
  kRecomputed,  ///< linear, computed anew within backward
  kAgain,       ///< the linear layer `of` once more
  kTied,        ///< a layer of its own with the weight of `of`
  kConv,        ///< with channels_last weights
  kEmbedding,
  kLayerNorm,
  kBatchNorm,
  kTransposed,  ///< a weight that is not contiguous
  kComplex,
  kScalar,
  kEmpty,  ///< a parameter without elements
};

constexpr int kFeatures = 6;
constexpr int kNever = -1;

struct LayerPlan {
  LayerKind kind = LayerKind::kLinear;
  torch::ScalarType type = torch::kFloat64;
  int units = 8;
  int of = 0;               ///< index of another layer
  bool may_rest = false;    ///< some passes leave it out
  bool frozen = false;      ///< from the start
  int joins_at = kNever;    ///< step before which the optimizer gets it and it is first used
  int freezes_at = kNever;  ///< step before which it is frozen, until `thaws_at`
  int thaws_at = kNever;
};

enum class Way : std::uint8_t { kHorovod, kDdp, kSharded, kShardedDdp, kAccelerator };
enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad, kLbfgs };
enum class Wire : std::uint8_t { kWhole, kFp16, kBf16, kFp16Feedback };
enum class Hook : std::uint8_t { kNone, kAverage, kLate };
/// How layers that may be left out are left out.
enum class Rests : std::uint8_t { kNone, kByRank, kBySteps, kFreely };

/// One network and its optimizer.
struct ModelPlan {
  std::uint64_t salt = 0;  ///< salt of its weights and data
  std::vector<LayerPlan> layers;
  Way way = Way::kHorovod;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  int flavour = 0;  ///< variant of the optimizer's options
  int groups = 1;   ///< groups of the optimizer's parameters
  Rests rests = Rests::kNone;
  bool sum = false;  ///< sum instead of average
  bool weighed = false;
  double predivide = 1;
  Wire wire = Wire::kWhole;
  int travel_groups = 0;  ///< groups of gradients; negative: lists of so many parameters
  bool shared_gradients = true;
  bool counts_passes = false;  ///< with backward_passes_per_step
  bool local_passes = false;   ///< no_sync() in all passes but the last
  double bucket_mb = 25;
  bool find_unused = false;
  bool static_graph = false;
  bool bucket_view = true;
  bool broadcast_buffers = true;
  bool optimizer_first = false;  ///< the optimizer is made before the wrapper
  Hook hook = Hook::kNone;

  bool has_ddp() const { return way != Way::kHorovod && way != Way::kSharded; }
  /// Whether a forward takes another size of the layer's last parameter, which it always uses.
  bool may_change_size(const LayerPlan& layer) const;
  bool is_sharded() const { return way == Way::kSharded || way == Way::kShardedDdp; }
  /// How far values may differ from those of one process.
  double tolerance() const;
};

struct PassPlan {
  std::uint64_t salt = 0;                        ///< salt of the data
  std::vector<int> rows;                         ///< by rank
  std::vector<std::vector<std::uint64_t>> uses;  ///< by model and rank: a bit per layer
  bool twice = false;                            ///< two forwards before the backward
};

enum class Zero : std::uint8_t { kBefore, kAfter, kNone };

struct StepPlan {
  std::vector<PassPlan> passes;
  Zero zero = Zero::kBefore;
  bool to_none = true;
  double clip = 0;        ///< largest norm; 0: no clipping
  bool halves = false;    ///< halves the gradients by hand
  int overflow = kNever;  ///< index of the model that overflows, with a scaler
  int overflow_rank = 0;
  double lr_factor = 1;
  int rate_apart = kNever;  ///< rank that first tries the step with its own learning rates
  int size_apart = kNever;  ///< rank that first tries it with another size of one parameter
  int leaves_out = kNever;  ///< rank that leaves a batch out before
  bool forks = false;       ///< a child writes to the gradients meanwhile
  bool evaluates = false;
  std::uint64_t strides = 0;      ///< salt of new parameter strides before the step; 0: no change
  bool strides_by_rank = false;   ///< each rank has other strides
  bool reloads = false;           ///< through a checkpoint
  bool broadcasts_state = false;  ///< the optimizers' state
  std::vector<bool> takes_part;   ///< by rank: whether it has not joined
};

struct Plan {
  std::uint64_t seed = 0;
  int size = 1;
  std::vector<ModelPlan> models;
  bool one_backward = false;  ///< one backward of the sum of the models' losses
  bool closure = false;
  bool scaled = false;
  int joins_until =
      0;  ///< ranks run out of steps before this one at different times; 0: they do not
  std::vector<StepPlan> steps;

  std::string text() const;
};

/// `in_set`: the ranks are not the whole world.
Plan draw_plan(std::uint64_t seed, int size, bool in_set);

}  // namespace kolo::test
