// The state of a rank of a random training after another rank has failed, and what the rank can
// still do.
#include "tests/bindings/torch/stress/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo::test {
namespace {

using torch::Tensor;

/// Which elements differ by more than `tolerance`.
Tensor far_from(const Tensor& ours, const Tensor& right, double tolerance) {
  const Tensor off = (ours - right).abs() / (1 + right.abs());
  return off.isnan().logical_or(off > tolerance);
}

std::vector<Tensor> copies_of(const NetworkImpl& network) {
  std::vector<Tensor> copies;
  for (const Tensor& parameter : network.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

}  // namespace

void Training::remember() {
  before_.clear();
  for (const Pair& pair : models_) before_.push_back(copies_of(*pair.alone->network()));
  alone_ended_ = true;
}

bool Training::can_redo() const {
  if (step_ == std::ssize(plan_.steps) || models_.size() > 1 || plan_.closure || plan_.scaled ||
      plan_.joins_until > 0)
    return false;
  const ModelPlan& plan = plan_.models.front();
  // In these models, leftovers of a pass count twice.
  const bool remembers =
      std::any_of(plan.layers.begin(), plan.layers.end(),
                  [](const LayerPlan& layer) { return layer.kind == LayerKind::kBatchNorm; });
  return !remembers && plan.way != Way::kAccelerator && plan.wire != Wire::kFp16Feedback &&
         plan_.steps[static_cast<std::size_t>(step_)].zero == Zero::kBefore;
}

bool Training::can_redo_late() const {
  return can_redo() && plan_.models.front().way == Way::kHorovod;
}

void Training::leave_out() {
  Model& model = *models_.front().ours;
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(step_)];
  // As the step does it: an optimizer tells zeros from no gradient.
  if (!plan_.models.front().has_ddp()) return model.zero_grad(step.to_none);
  // For example, its loss is not a number.
  model.forward({part(0, step.passes.front(), rank_)});
}

void Training::redo() {
  do_ours(step_);
  end_alone(plan_.steps[static_cast<std::size_t>(step_)]);
  compare("after the step that was made again");
  ++step_;
}

void Training::leave_join() {
  if (join_ == nullptr) return;
  const std::unique_ptr<Join> join = std::move(join_);
  join->finish();
}

void Training::check_left() {
  const torch::NoGradGuard no_grad;
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(step_)];
  // Ranks that have joined do not know about later steps.
  const bool mine = step.takes_part[static_cast<std::size_t>(rank_)];
  if (!is_whole_ || !mine || before_.empty()) return;
  if (!alone_ended_) {
    const torch::AutoGradMode grad_mode(true);
    end_alone(step);
  }
  for (std::size_t m = 0; m < models_.size(); ++m) {
    const ModelPlan& plan = plan_.models[m];
    // LBFGS steps several times.
    if (plan.optimizer == OptimizerKind::kLbfgs) continue;
    const auto behind = models_[m].alone->network()->parameters();
    const auto ours = models_[m].ours->network()->named_parameters();
    std::string neither;
    bool all_before = true;
    bool all_behind = true;
    for (std::size_t i = 0; i < behind.size(); ++i) {
      const Tensor mine_now = ours.pairs()[i].second;
      const Tensor not_before = far_from(mine_now, before_[m][i], plan.tolerance());
      const Tensor not_behind = far_from(mine_now, behind[i], plan.tolerance());
      all_before &= !not_before.any().item<bool>();
      all_behind &= !not_behind.any().item<bool>();
      if (neither.empty() && not_before.logical_and(not_behind).any().item<bool>())
        neither = ours.pairs()[i].first;
    }
    if (!neither.empty())
      throw Differs(
          fmt::format("left: '{}' of model {} is neither that before the step nor that "
                      "behind it",
                      neither, m));
    // A sharded optimizer's own pieces are new before the others' arrive.
    if (!all_before && !all_behind && !plan.is_sharded())
      throw Differs(fmt::format("left: model {} is half a step ahead", m));
  }
}

void Training::save_left() {
  if (!is_whole_) return;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    progress_("saving what is left");
    Pair& pair = models_[m];
    const auto path = folder_ / fmt::format("left_{}.pt", m);
    const bool sharded = plan_.models[m].is_sharded();
    const CheckpointParts parts{.module = pair.ours->network().get(),
                                .optimizer = sharded ? nullptr : &pair.ours->optimizer(),
                                .scaler = plan_.scaled ? &scaler_ : nullptr};
    try {
      save_checkpoint(path, parts, step_);
      throw Differs("a checkpoint was saved by all ranks though one had failed");
    } catch (const Exception& error) {
      if (kolo::rank() != 0) throw;
      if (!std::filesystem::exists(path))
        throw Differs(fmt::format("nothing was saved: {}", error.what()));
      const auto saved = make(m, true, 99);
      torch::load(saved->network(), path.string());
      const auto got = saved->network()->parameters();
      const auto right = pair.ours->network()->parameters();
      for (std::size_t i = 0; i < got.size(); ++i)
        if (!torch::equal(got[i], right[i])) throw Differs("what was saved is not what is here");
      if (m + 1 == models_.size()) throw;
    }
  }
}

void Training::go_on() {
  if (!is_whole_) return;
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(step_)];
  if (!step.takes_part[static_cast<std::size_t>(rank_)]) return;
  progress_("going on");
  scaler_ = scaler_of(plan_);
  for (Pair& pair : models_) pair.ours->zero_grad(step.to_none);
  do_ours(step_);
  // Ranks of a set without the failed rank go on.
  if (plan_.size > 1 && !in_set_) throw Differs("a step went through though a rank had failed");
}

}  // namespace kolo::test
