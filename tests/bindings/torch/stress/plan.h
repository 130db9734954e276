// A random training that all ranks draw alike from one seed: networks, who reduces their gradients
// and how, and what happens in each step. Pure.
#pragma once

#include "tests/support/dice.h"

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::test {

/// Of a layer; all take rows of kFeatures numbers to such rows.
enum class LayerKind : std::uint8_t {
  kLinear,
  kWide,        ///< two linear ones with many units between them
  kRecomputed,  ///< linear, computed anew within backward
  kAgain,       ///< the linear layer `of` once more
  kTied,        ///< a layer of its own with the weight of `of`
  kConv,        ///< of channels_last weights
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
  int of = 0;               ///< place of another layer
  bool may_rest = false;    ///< some passes leave it out
  bool frozen = false;      ///< from the start
  int joins_at = kNever;    ///< step before which the optimizer gets it, and it is first used
  int freezes_at = kNever;  ///< step before which it is frozen, until `thaws_at`
  int thaws_at = kNever;
};

enum class Way : std::uint8_t { kHorovod, kDdp, kSharded, kShardedDdp, kAccelerator };
enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad, kLbfgs };
enum class Wire : std::uint8_t { kWhole, kFp16, kBf16, kFp16Feedback };
enum class Hook : std::uint8_t { kNone, kAverage, kLate };
/// How layers that may rest do so.
enum class Rests : std::uint8_t { kNone, kByRank, kBySteps, kFreely };

/// One network and its optimizer.
struct ModelPlan {
  std::uint64_t salt = 0;  ///< of its weights and data
  std::vector<LayerPlan> layers;
  Way way = Way::kHorovod;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  int flavour = 0;  ///< of the optimizer's options
  int groups = 1;   ///< of the optimizer's parameters
  Rests rests = Rests::kNone;
  bool sum = false;  ///< not the average
  bool weighed = false;
  double predivide = 1;
  Wire wire = Wire::kWhole;
  int travel_groups = 0;  ///< of gradients; negative: lists of so many parameters
  bool shared_gradients = true;
  bool counts_passes = false;  ///< with backward_passes_per_step
  bool local_passes = false;   ///< no_sync() but in the last one
  double bucket_mb = 25;
  bool find_unused = false;
  bool static_graph = false;
  bool bucket_view = true;
  bool broadcast_buffers = true;
  bool optimizer_first = false;  ///< made before the wrapper
  Hook hook = Hook::kNone;

  bool has_ddp() const { return way != Way::kHorovod && way != Way::kSharded; }
  bool is_sharded() const { return way == Way::kSharded || way == Way::kShardedDdp; }
  /// How far values may be from those of one process.
  double tolerance() const;
};

struct PassPlan {
  std::uint64_t salt = 0;                        ///< of the data
  std::vector<int> rows;                         ///< by rank
  std::vector<std::vector<std::uint64_t>> uses;  ///< by model and rank: a bit for each layer
  bool twice = false;                            ///< two forwards before the backward
};

enum class Zero : std::uint8_t { kBefore, kAfter, kNone };

struct StepPlan {
  std::vector<PassPlan> passes;
  Zero zero = Zero::kBefore;
  bool to_none = true;
  double clip = 0;        ///< norm; 0: none
  bool halves = false;    ///< the gradients, by hand
  int overflow = kNever;  ///< model that has one, with a scaler
  int overflow_rank = 0;
  double lr_factor = 1;
  int rate_apart = kNever;  ///< rank that tries the step first with learning rates of its own
  bool evaluates = false;
  std::uint64_t strides = 0;      ///< salt of those that parameters get before it; 0: they stay
  bool strides_by_rank = false;   ///< each rank other ones
  bool reloads = false;           ///< by a checkpoint
  bool broadcasts_state = false;  ///< of the optimizers
  std::vector<bool> takes_part;   ///< by rank: those that have not joined
};

struct Plan {
  std::uint64_t seed = 0;
  int size = 1;
  std::vector<ModelPlan> models;
  bool one_backward = false;  ///< of the models' losses together
  bool closure = false;
  bool scaled = false;
  int joins_until =
      0;  ///< ranks run out of steps before this one at different times; 0: they do not
  std::vector<StepPlan> steps;

  std::string text() const;
};

/// `in_set`: for ranks that are not the world.
Plan draw_plan(std::uint64_t seed, int size, bool in_set);

}  // namespace kolo::test
