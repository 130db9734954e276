#include "tests/bindings/torch/stress/plan.h"

#include <algorithm>
#include <sstream>

namespace kolo::test {
namespace {

template <class T>
T one_of(Dice& dice, std::initializer_list<T> values) {
  return *(values.begin() + dice.below(static_cast<std::int64_t>(values.size())));
}

class Drawer {
 public:
  Drawer(std::uint64_t seed, int size, bool in_set)
      : dice_(seed * 2654435761 + static_cast<std::uint64_t>(size)), in_set_(in_set) {
    plan_.seed = seed;
    plan_.size = size;
  }
  Plan draw();

 private:
  void draw_model(ModelPlan& model);
  void draw_layers(ModelPlan& model);
  void draw_way(ModelPlan& model);
  void draw_step(int number);
  PassPlan draw_pass(int step);
  std::uint64_t uses(const ModelPlan& model, int step, int rank, std::uint64_t salt);
  /// Whether `what` holds for some model.
  template <class What>
  bool has(What what) const {
    return std::any_of(plan_.models.begin(), plan_.models.end(), what);
  }

  Dice dice_;
  const bool in_set_;
  Plan plan_;
  int step_count_ = 0;
  bool unequal_rows_ = false;
  bool recomputes_ = false;  ///< a backward runs within another one
};

LayerKind any_kind(Dice& dice) {
  return static_cast<LayerKind>(dice.below(static_cast<int>(LayerKind::kEmpty) + 1));
}

void Drawer::draw_way(ModelPlan& model) {
  model.way = in_set_ ? one_of(dice_, {Way::kHorovod, Way::kSharded})
                      : one_of(dice_, {Way::kHorovod, Way::kHorovod, Way::kDdp, Way::kDdp,
                                       Way::kSharded, Way::kShardedDdp, Way::kAccelerator});
  if (plan_.joins_until > 0 && model.way != Way::kHorovod) model.way = Way::kDdp;
  if (plan_.models.size() > 1 && model.way == Way::kAccelerator) model.way = Way::kDdp;
  model.optimizer = static_cast<OptimizerKind>(dice_.below(plan_.closure ? 6 : 5));
  const bool lbfgs = model.optimizer == OptimizerKind::kLbfgs;
  if (lbfgs) model.way = one_of(dice_, {Way::kHorovod, Way::kDdp});
  if (lbfgs && in_set_) model.way = Way::kHorovod;
  if ((plan_.closure || plan_.scaled) && model.way == Way::kAccelerator) model.way = Way::kHorovod;
  model.flavour = static_cast<int>(dice_.below(4));
  model.groups = lbfgs ? 1 : 1 + static_cast<int>(dice_.below(3));
  model.shared_gradients = !dice_.one_in(3);
  model.counts_passes = dice_.one_in(2);
  model.local_passes = dice_.one_in(2);
  model.bucket_mb = one_of(dice_, {25.0, 1.0, 0.001, 0.0003, 0.00001});
  model.travel_groups = one_of(dice_, {0, 0, 1, 2, 3, -1, -2, -3});
  model.optimizer_first = dice_.one_in(2);
  if (model.has_ddp()) {
    model.bucket_view = !dice_.one_in(3);
    const auto graph = dice_.below(3);
    model.find_unused = graph == 1;
    model.static_graph = graph == 2;
    model.rests = model.find_unused    ? static_cast<Rests>(dice_.below(4))
                  : model.static_graph ? one_of(dice_, {Rests::kNone, Rests::kByRank})
                                       : Rests::kNone;
    model.broadcast_buffers = plan_.joins_until == 0 && !dice_.one_in(4);
    if (model.way == Way::kDdp && dice_.one_in(4))
      model.hook = one_of(dice_, {Hook::kAverage, Hook::kLate});
    if (plan_.joins_until > 0) model.hook = Hook::kNone;
    // The set of used layers is fixed at the first step, but the set of remaining ranks is not.
    if (plan_.joins_until > 0 && model.static_graph) model.rests = Rests::kNone;
    return;
  }
  model.rests = static_cast<Rests>(dice_.below(4));
  model.sum = dice_.one_in(4);
  if (model.way == Way::kHorovod && !lbfgs && !plan_.scaled && plan_.joins_until == 0 &&
      dice_.one_in(6)) {
    model.weighed = true;
    model.sum = false;
    model.counts_passes = false;
  }
  if (!model.sum && dice_.one_in(4)) model.predivide = one_of(dice_, {2.0, 0.5, 3.0});
  if (model.way == Way::kHorovod && !lbfgs && dice_.one_in(5))
    model.wire = static_cast<Wire>(1 + dice_.below(3));
  if (plan_.scaled && model.wire == Wire::kFp16Feedback) model.wire = Wire::kFp16;
}

void Drawer::draw_layers(ModelPlan& model) {
  const int count = 1 + static_cast<int>(dice_.below(dice_.one_in(4) ? 16 : 6));
  const auto type =
      one_of(dice_, {torch::kFloat64, torch::kFloat64, torch::kFloat64, torch::kFloat32});
  const bool mixed = dice_.one_in(6);
  const bool precise = model.optimizer == OptimizerKind::kLbfgs;
  model.layers.push_back({.type = precise ? torch::kFloat64 : type});
  for (int i = 1; i < count; ++i) {
    LayerPlan layer{.kind = any_kind(dice_)};
    layer.type = mixed ? one_of(dice_, {torch::kFloat64, torch::kFloat32}) : type;
    if (precise) layer.type = torch::kFloat64;
    layer.units = one_of(dice_, {3, 17, 64, 700});
    if (dice_.one_in(40)) layer.units = 40000;
    layer.of = static_cast<int>(dice_.below(i));
    const LayerPlan& other = model.layers[static_cast<std::size_t>(layer.of)];
    const bool shares = layer.kind == LayerKind::kAgain || layer.kind == LayerKind::kTied;
    if (shares && (other.kind != LayerKind::kLinear || other.joins_at != kNever || other.frozen))
      layer.kind = LayerKind::kLinear;
    if (layer.kind == LayerKind::kTied || layer.kind == LayerKind::kAgain) layer.type = other.type;
    const bool simple = model.optimizer == OptimizerKind::kSgd;
    // LibTorch unscales no complex gradients.
    if (layer.kind == LayerKind::kComplex &&
        (!simple || plan_.scaled || model.wire != Wire::kWhole))
      layer.kind = LayerKind::kWide;
    // One name per parameter.
    if (layer.kind == LayerKind::kTied && model.is_sharded()) layer.kind = LayerKind::kAgain;
    if (layer.kind == LayerKind::kRecomputed && model.find_unused) layer.kind = LayerKind::kScalar;
    // The number of LBFGS's closure calls, and so of batch norm updates, may depend on a last bit.
    if (layer.kind == LayerKind::kBatchNorm && (model.weighed || precise))
      layer.kind = LayerKind::kLayerNorm;
    // LibTorch's LBFGS takes no other strides.
    if (precise && (layer.kind == LayerKind::kTransposed || layer.kind == LayerKind::kConv))
      layer.kind = LayerKind::kWide;
    const bool is_shared = layer.kind == LayerKind::kAgain || layer.kind == LayerKind::kTied;
    layer.may_rest = layer.kind != LayerKind::kBatchNorm && dice_.one_in(3);
    if (!is_shared) {
      layer.frozen = dice_.one_in(10);
      // LibTorch's Adagrad makes no state for a parameter that is added.
      const bool takes_more = !model.has_ddp() && model.optimizer != OptimizerKind::kAdagrad;
      if (!layer.frozen && takes_more && !plan_.closure && plan_.joins_until == 0 &&
          dice_.one_in(10) && layer.kind != LayerKind::kBatchNorm) {
        layer.joins_at = static_cast<int>(dice_.below(step_count_));
      } else if (!layer.frozen && (!model.has_ddp() || model.find_unused) &&
                 plan_.joins_until == 0 && dice_.one_in(8)) {
        layer.freezes_at = static_cast<int>(dice_.below(step_count_));
        if (dice_.one_in(2))
          layer.thaws_at = layer.freezes_at + 1 + static_cast<int>(dice_.below(2));
      }
    }
    model.layers.push_back(layer);
  }
}

void Drawer::draw_model(ModelPlan& model) {
  model.salt = dice_.salt() >> 8;
  draw_way(model);
  draw_layers(model);
}

std::uint64_t Drawer::uses(const ModelPlan& model, int step, int rank, std::uint64_t salt) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerPlan& layer = model.layers[i];
    bool used = layer.joins_at == kNever || step >= layer.joins_at;
    if (used && layer.may_rest) {
      Dice by_rank(model.salt + i * 64 + static_cast<std::uint64_t>(rank));
      Dice by_step(salt + i);
      Dice freely(salt + i * 64 + static_cast<std::uint64_t>(rank) * 4096);
      switch (model.rests) {
        case Rests::kNone:
          break;
        case Rests::kByRank:
          used = by_rank.one_in(2);
          break;
        case Rests::kBySteps:
          used = by_step.one_in(2);
          break;
        case Rests::kFreely:
          used = freely.one_in(2);
          break;
      }
    }
    if (used) bits |= std::uint64_t{1} << i;
  }
  return bits;
}

PassPlan Drawer::draw_pass(int step) {
  PassPlan pass{.salt = dice_.salt() >> 8};
  pass.twice = recomputes_ ? false : dice_.one_in(4);
  const int common = 2 + static_cast<int>(dice_.below(3));
  for (int rank = 0; rank < plan_.size; ++rank)
    pass.rows.push_back(unequal_rows_ ? 2 + static_cast<int>(dice_.below(4)) : common);
  const bool weighed = has([](const ModelPlan& m) { return m.weighed; });
  if (weighed && plan_.models.size() == 1 && plan_.size > 1 && dice_.one_in(3))
    pass.rows[static_cast<std::size_t>(dice_.below(plan_.size))] = 0;
  for (const ModelPlan& model : plan_.models) {
    std::vector<std::uint64_t> by_rank;
    const std::uint64_t salt = dice_.salt() >> 8;
    for (int rank = 0; rank < plan_.size; ++rank) by_rank.push_back(uses(model, step, rank, salt));
    pass.uses.push_back(std::move(by_rank));
  }
  return pass;
}

void Drawer::draw_step(int number) {
  StepPlan step;
  const bool weighed = has([](const ModelPlan& m) { return m.weighed; });
  const bool by_accelerator = has([](const ModelPlan& m) { return m.way == Way::kAccelerator; });
  step.passes.resize(1);
  // Equal in all steps, for models that count them.
  Dice alike(plan_.models.front().salt);
  if (!weighed && plan_.joins_until == 0 && !plan_.closure && alike.one_in(2))
    step.passes.resize(static_cast<std::size_t>(2 + alike.below(2)));
  for (PassPlan& pass : step.passes) pass = draw_pass(number);
  // Each synchronized pass reaches the same parameters on all ranks.
  for (std::size_t m = 0; m < plan_.models.size(); ++m) {
    const ModelPlan& model = plan_.models[m];
    const bool counted = model.way != Way::kHorovod || model.counts_passes;
    if (step.passes.size() == 1 || counted) continue;
    for (PassPlan& pass : step.passes)
      std::fill(pass.uses[m].begin(), pass.uses[m].end(), pass.uses[m].front());
  }
  step.to_none = dice_.one_in(2);
  const bool clips = !plan_.closure && dice_.one_in(4);
  if (clips) step.clip = one_of(dice_, {0.01, 0.5, 1e6});
  step.halves = !clips && !plan_.closure && !plan_.scaled && !by_accelerator && dice_.one_in(5);
  const auto zero = dice_.below(6);
  step.zero = zero == 0 && !plan_.scaled ? Zero::kNone : zero < 3 ? Zero::kAfter : Zero::kBefore;
  if (plan_.closure || plan_.joins_until > 0) step.zero = Zero::kBefore;
  if (plan_.scaled && dice_.one_in(3)) {
    step.overflow = static_cast<int>(dice_.below(static_cast<int>(plan_.models.size())));
    step.overflow_rank = static_cast<int>(dice_.below(plan_.size));
  }
  if (dice_.one_in(5) && plan_.joins_until == 0) step.lr_factor = one_of(dice_, {0.5, 2.0});
  if (dice_.one_in(5) && plan_.size > 1)
    step.rate_apart = static_cast<int>(dice_.below(plan_.size));
  step.evaluates = plan_.joins_until == 0 && dice_.one_in(5);
  const bool freezes = has([](const ModelPlan& m) {
    return m.has_ddp() && std::any_of(m.layers.begin(), m.layers.end(),
                                      [](const LayerPlan& l) { return l.freezes_at != kNever; });
  });
  step.reloads = !in_set_ && plan_.joins_until == 0 && !by_accelerator && !freezes && number > 0 &&
                 dice_.one_in(6);
  step.broadcasts_state = !in_set_ && plan_.joins_until == 0 && dice_.one_in(6) &&
                          !has([](const ModelPlan& m) { return m.is_sharded(); });
  // LibTorch's LBFGS supports no other strides. A group of shards is added with the strides of all
  // ranks.
  const bool keeps_strides = has([](const ModelPlan& m) {
    return m.optimizer == OptimizerKind::kLbfgs ||
           (m.is_sharded() && std::any_of(m.layers.begin(), m.layers.end(), [](const auto& layer) {
              return layer.joins_at != kNever;
            }));
  });
  if (dice_.one_in(5) && !keeps_strides) {
    step.strides = dice_.salt() >> 8;
    step.strides_by_rank = dice_.one_in(2);
  }
  Dice later(plan_.seed * 64 + static_cast<std::uint64_t>(number));
  if (later.one_in(3) && plan_.size > 1)
    step.size_apart = static_cast<int>(later.below(plan_.size));
  if (later.one_in(4) && plan_.size > 1)
    step.leaves_out = static_cast<int>(later.below(plan_.size));
  step.forks = later.one_in(4);
  step.takes_part.assign(static_cast<std::size_t>(plan_.size), true);
  plan_.steps.push_back(std::move(step));
}

Plan Drawer::draw() {
  step_count_ = 3 + static_cast<int>(dice_.below(5));
  unequal_rows_ = dice_.one_in(2);
  const bool joins = !in_set_ && dice_.one_in(8);
  if (joins) plan_.joins_until = std::max(1, step_count_ - 2);
  plan_.closure = plan_.joins_until == 0 && dice_.one_in(7);
  plan_.scaled = !plan_.closure && plan_.joins_until == 0 && dice_.one_in(4);
  const bool two = plan_.joins_until == 0 && !plan_.closure && dice_.one_in(4);
  plan_.models.resize(two ? 2 : 1);
  plan_.one_backward = two && dice_.one_in(2);
  for (ModelPlan& model : plan_.models) {
    draw_model(model);
    recomputes_ |= std::any_of(model.layers.begin(), model.layers.end(),
                               [](const LayerPlan& l) { return l.kind == LayerKind::kRecomputed; });
  }
  for (int i = 0; i < step_count_; ++i) draw_step(i);
  const bool sharded = has([](const ModelPlan& m) { return m.is_sharded(); });
  const bool weighed = has([](const ModelPlan& m) { return m.weighed; });
  // A loop calls an Accelerator's zero_grad() at one place only.
  const bool accelerated = plan_.models.front().way == Way::kAccelerator;
  const Zero first = plan_.steps.front().zero;
  for (StepPlan& step : plan_.steps)
    if (accelerated) step.zero = first == Zero::kAfter ? first : Zero::kBefore;
  for (std::size_t i = 0; i + 1 < plan_.steps.size(); ++i) {
    const Zero next = plan_.steps[i + 1].zero;
    const bool kept = plan_.steps[i].zero != Zero::kAfter && next != Zero::kBefore;
    if (!kept) continue;
    // Clipping changes only the gradients of the pieces.
    if (sharded) plan_.steps[i].clip = 0;
    if (sharded) plan_.steps[i].halves = false;
    if (plan_.scaled || weighed) plan_.steps[i + 1].zero = Zero::kBefore;
  }
  if (plan_.joins_until > 0) {
    for (int rank = 0; rank < plan_.size; ++rank) {
      const int mine = static_cast<int>(dice_.below(plan_.joins_until + 1));
      for (int i = mine; i < plan_.joins_until; ++i)
        plan_.steps[static_cast<std::size_t>(i)].takes_part[static_cast<std::size_t>(rank)] = false;
    }
  }
  return std::move(plan_);
}

}  // namespace

double ModelPlan::tolerance() const {
  double tolerance = 1e-8;
  for (const LayerPlan& layer : layers)
    if (layer.type == torch::kFloat32) tolerance = 5e-4;
  if (wire == Wire::kFp16 || wire == Wire::kFp16Feedback) tolerance = 5e-3;
  if (wire == Wire::kBf16) tolerance = 3e-2;
  return tolerance;
}

bool ModelPlan::may_change_size(const LayerPlan& layer) const {
  switch (layer.kind) {
    case LayerKind::kLinear:  // one bias for all
    case LayerKind::kWide:
    case LayerKind::kRecomputed:
    case LayerKind::kTied:
    case LayerKind::kEmbedding:
    case LayerKind::kScalar:
    case LayerKind::kEmpty:
      return (!layer.may_rest || rests == Rests::kNone) && !layer.frozen &&
             layer.joins_at == kNever && layer.freezes_at == kNever;
    case LayerKind::kAgain:
    case LayerKind::kConv:
    case LayerKind::kLayerNorm:
    case LayerKind::kBatchNorm:
    case LayerKind::kTransposed:
    case LayerKind::kComplex:
      return false;
  }
  return false;
}

std::string Plan::text() const {
  std::ostringstream text;
  text << "seed " << seed << ": " << size << " ranks, " << steps.size() << " steps of "
       << steps.front().passes.size() << " passes" << (one_backward ? ", one backward" : "")
       << (closure ? ", closure" : "") << (scaled ? ", scaled" : "")
       << (joins_until > 0 ? ", joins" : "");
  for (const ModelPlan& m : models) {
    text << "\n  way " << static_cast<int>(m.way) << ", optimizer " << static_cast<int>(m.optimizer)
         << '.' << m.flavour << ", groups " << m.groups << '/' << m.travel_groups << ", rests "
         << static_cast<int>(m.rests) << ", wire " << static_cast<int>(m.wire) << ", predivide "
         << m.predivide << ", bucket " << m.bucket_mb << (m.sum ? ", sum" : "")
         << (m.weighed ? ", weighed" : "") << (m.counts_passes ? ", counts passes" : "")
         << (m.local_passes ? ", local passes" : "") << (m.find_unused ? ", find_unused" : "")
         << (m.static_graph ? ", static_graph" : "") << (m.bucket_view ? ", views" : "")
         << (m.hook == Hook::kNone ? "" : ", hook") << "\n  layers:";
    for (const LayerPlan& l : m.layers)
      text << ' ' << static_cast<int>(l.kind) << (l.type == torch::kFloat32 ? "f" : "d")
           << (l.may_rest ? "?" : "") << (l.frozen ? "!" : "")
           << (l.joins_at == kNever ? "" : "+" + std::to_string(l.joins_at))
           << (l.freezes_at == kNever ? "" : "-" + std::to_string(l.freezes_at));
  }
  text << "\n  steps:";
  for (const StepPlan& s : steps) {
    text << " ["
         << "ban"[static_cast<int>(s.zero)] << (s.to_none ? "" : "0") << (s.clip > 0 ? " clip" : "")
         << (s.halves ? " half" : "") << (s.overflow != kNever ? " overflow" : "")
         << (s.lr_factor != 1 ? " lr" : "") << (s.rate_apart != kNever ? " apart" : "")
         << (s.size_apart != kNever ? " size apart" : "")
         << (s.leaves_out != kNever ? " left out" : "") << (s.forks ? " fork" : "")
         << (s.evaluates ? " eval" : "")
         << (s.strides == 0      ? ""
             : s.strides_by_rank ? " strides by rank"
                                 : " strides")
         << (s.reloads ? " reload" : "") << (s.broadcasts_state ? " state" : "") << "]";
  }
  return text.str();
}

Plan draw_plan(std::uint64_t seed, int size, bool in_set) {
  return Drawer(seed, size, in_set).draw();
}

}  // namespace kolo::test
