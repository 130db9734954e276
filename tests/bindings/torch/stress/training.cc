#include "tests/bindings/torch/stress/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace kolo::test {
namespace {

using torch::Tensor;

void scale_rates(torch::optim::Optimizer& optimizer, double factor) {
  for (auto& group : optimizer.param_groups())
    group.options().set_lr(group.options().get_lr() * factor);
}

Tensor error_of(const Tensor& output, const Tensor& input) {
  return (output - (2 * input).sin()).square().mean();
}

/// A forward takes it, too.
Tensor other_size(const Tensor& data) {
  if (data.dim() == 0) return data.repeat({kFeatures});
  if (data.dim() == 1) return data.slice(0, 0, 1).clone();
  return torch::constant_pad_nd(data, {0, 0, 0, 1});
}

/// Halves the gradients of all the optimizer's parameters.
void halve_gradients(Model& model) {
  const torch::NoGradGuard no_grad;
  for (const Tensor& parameter : model.network()->parameters())
    if (parameter.grad().defined()) parameter.mutable_grad().div_(2);
}

}  // namespace

GradScaler scaler_of(const Plan& plan) {
  return GradScaler({.init_scale = 8, .growth_interval = 2, .enabled = plan.scaled});
}

Training::Training(Plan plan, ProcessSet set, bool in_set, std::filesystem::path folder,
                   Progress progress)
    : plan_(std::move(plan)),
      set_(set),
      in_set_(in_set),
      folder_(std::move(folder)),
      progress_(std::move(progress)),
      rank_(set.rank()),
      scaler_(scaler_of(plan_)) {
  for (std::size_t m = 0; m < plan_.models.size(); ++m) {
    progress_("making the models");
    const ModelPlan& model = plan_.models[m];
    const int root = model.has_ddp() ? 0 : static_cast<int>(model.salt % plan_.size);
    models_.push_back({.ours = make(m, false, model.salt + (rank_ == root ? 0 : 1 + rank_)),
                       .alone = make(m, true, model.salt)});
    share_weights(m);
  }
  compare("at the start");
  if (plan_.joins_until > 0) join_ = std::make_unique<Join>();
}

std::unique_ptr<Model> Training::make(std::size_t m, bool alone, std::uint64_t weights) const {
  return make_model(plan_.models[m],
                    {.alone = alone,
                     .set = set_,
                     .accumulation = static_cast<int>(plan_.steps.front().passes.size())},
                    weights);
}

void Training::share_weights(std::size_t m) {
  const ModelPlan& plan = plan_.models[m];
  if (plan.has_ddp()) return;
  const int root = set_.ranks()[plan.salt % static_cast<std::uint64_t>(plan_.size)];
  NetworkImpl& network = *models_[m].ours->network();
  if (!in_set_) return broadcast_parameters(network, root);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : network.named_parameters().pairs())
    broadcast_(tensor.detach(), root,
               {.name = fmt::format("weights of {}/{}", plan.salt, name), .process_set = set_});
}

Part Training::part(std::size_t m, const PassPlan& pass, int rank) const {
  torch::manual_seed(pass.salt + static_cast<std::uint64_t>(rank) * 7919 + m * 104729);
  return {.input =
              torch::randn({pass.rows[static_cast<std::size_t>(rank)], kFeatures}, torch::kFloat64),
          .uses = pass.uses[m][static_cast<std::size_t>(rank)]};
}

void Training::add_layers(std::size_t m, int step, Model& model) {
  const auto& layers = plan_.models[m].layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].joins_at != step) continue;
    const auto& own = model.network()->parameters_of(i);
    if (!own.empty()) model.add_group({own, model.group_options(kLearningRate / 2)});
  }
}

void Training::freeze_layers(std::size_t m, int step, Model& model) {
  const auto& layers = plan_.models[m].layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool freezes = layers[i].freezes_at == step;
    if (!freezes && layers[i].thaws_at != step) continue;
    for (Tensor parameter : model.network()->parameters_of(i))
      parameter.set_requires_grad(!freezes);
  }
}

void Training::evaluate() {
  progress_("evaluating");
  const torch::NoGradGuard no_grad;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    PassPlan pass = plan_.steps.front().passes.front();
    pass.rows.assign(pass.rows.size(), 3);
    const auto output = [&](Model& model) {
      model.network()->eval();
      Tensor result = model.forward({part(m, pass, rank_)}).front();
      model.network()->train();
      return result;
    };
    compare(fmt::format("evaluating: the output of model {}", m), output(*models_[m].ours),
            output(*models_[m].alone), 10 * plan_.models[m].tolerance());
  }
}

void Training::reload(int number) {
  is_whole_ = false;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    progress_("saving");
    const auto path = folder_ / fmt::format("{}.pt", m);
    Pair& pair = models_[m];
    const auto parts = [&] {
      return CheckpointParts{.module = pair.ours->network().get(),
                             .optimizer = &pair.ours->optimizer(),
                             .scaler = plan_.scaled ? &scaler_ : nullptr};
    };
    save_checkpoint(path, parts(), number);
    // One optimizer per parameter.
    pair.ours = nullptr;
    scaler_ = scaler_of(plan_);
    progress_("making a model anew");
    pair.ours = make(m, false, 99);
    for (int step = 0; step < number; ++step) {
      add_layers(m, step, *pair.ours);
      freeze_layers(m, step, *pair.ours);
    }
    progress_("loading");
    if (load_checkpoint(path, parts()) != number) throw Differs("the checkpoint's epoch");
    pair.alone->zero_grad(true);
  }
  is_whole_ = true;
  compare("loaded");
}

void Training::broadcast_states() {
  progress_("sending the optimizers' state");
  for (std::size_t m = 0; m < models_.size(); ++m) {
    const int root = static_cast<int>(plan_.models[m].salt / 7 % plan_.size);
    torch::optim::Optimizer& optimizer = models_[m].ours->optimizer();
    if (rank_ != root) {
      scale_rates(optimizer, 3);
      optimizer.state().clear();
    }
    broadcast_optimizer_state(optimizer, root);
  }
}

void Training::end_join() {
  progress_("joining");
  is_whole_ = false;
  const int last = join_->finish();
  join_ = nullptr;
  progress_("sending what the last has");
  for (Pair& pair : models_) {
    broadcast_parameters(*pair.ours->network(), last);
    broadcast_optimizer_state(pair.ours->optimizer(), last);
    // Ranks that have joined have other gradients than the last rank.
    pair.ours->zero_grad(true);
    pair.alone->zero_grad(true);
  }
  is_whole_ = true;
  compare("joined");
}

void Training::change_strides(const StepPlan& step) {
  const torch::NoGradGuard no_grad;
  for (Pair& pair : models_) {
    const auto parameters = pair.ours->network()->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int by_rank = step.strides_by_rank ? 4096 * rank_ : 0;
      Dice dice(step.strides + i * 64 + static_cast<std::uint64_t>(by_rank));
      std::vector<std::int64_t> order;
      for (std::int64_t d = 0; d < parameters[i].dim(); ++d)
        order.insert(order.begin() + dice.below(d + 1), d);
      Tensor data = parameters[i].detach().permute(order).clone(torch::MemoryFormat::Contiguous);
      // Strides with gaps to other elements; LibTorch's batch norm reads a weight as if there were
      // none.
      if (order.size() > 1 && dice.one_in(3))
        data = torch::stack({data, torch::zeros_like(data)}, -1).select(-1, 0);
      std::vector<std::int64_t> back(order.size());
      for (std::size_t d = 0; d < order.size(); ++d)
        back[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
      parameters[i].set_data(data.permute(back));
    }
  }
}

void Training::before_step(int number) {
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(number)];
  if (join_ != nullptr && number == plan_.joins_until) end_join();
  if (step.reloads) reload(number);
  if (step.broadcasts_state) broadcast_states();
  for (std::size_t m = 0; m < models_.size(); ++m) {
    for (Model* const model : {models_[m].ours.get(), models_[m].alone.get()}) {
      add_layers(m, number, *model);
      freeze_layers(m, number, *model);
      if (step.lr_factor != 1) scale_rates(model->optimizer(), step.lr_factor);
    }
  }
  if (step.strides != 0) change_strides(step);
  if (step.evaluates) evaluate();
}

Tensor Training::loss_of(std::size_t m, const PassPlan& pass, bool overflows) {
  Model& model = *models_[m].ours;
  const Part mine = part(m, pass, rank_);
  model.set_sample_count(mine.input.size(0));
  if (mine.input.size(0) == 0) return {};
  Tensor loss = error_of(model.forward({mine}).front(), mine.input);
  if (pass.twice) {
    const Part more{.input = mine.input.cos(), .uses = mine.uses};
    loss = loss + error_of(model.forward({more}).front(), more.input);
  }
  return overflows ? loss * std::numeric_limits<double>::infinity() : loss;
}

Tensor Training::loss_alone(std::size_t m, const StepPlan& step, const PassPlan& pass) {
  std::vector<Part> parts;
  double total = 0;
  for (int rank = 0; rank < plan_.size; ++rank) {
    const int rows = pass.rows[static_cast<std::size_t>(rank)];
    if (rows == 0 || !step.takes_part[static_cast<std::size_t>(rank)]) continue;
    parts.push_back(part(m, pass, rank));
    total += plan_.models[m].weighed ? rows : 1;
  }
  Tensor loss = torch::zeros({}, torch::kFloat64);
  const auto add = [&] {
    const auto outputs = models_[m].alone->forward(parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double weight = plan_.models[m].sum ? 1
                            : plan_.models[m].weighed
                                ? static_cast<double>(parts[i].input.size(0)) / total
                                : 1 / total;
      loss = loss + weight * error_of(outputs[i], parts[i].input);
    }
  };
  add();
  if (pass.twice) {
    for (Part& one : parts) one.input = one.input.cos();
    add();
  }
  const bool divided = models_[m].ours->steps_in_passes();
  return divided ? loss / static_cast<double>(step.passes.size()) : loss;
}

void Training::do_passes(const StepPlan& step, bool overflows) {
  for (std::size_t p = 0; p < step.passes.size(); ++p) {
    const PassPlan& pass = step.passes[p];
    const bool last = p + 1 == step.passes.size();
    std::vector<std::shared_ptr<void>> open;
    for (Pair& pair : models_) open.push_back(pair.ours->begin_pass(last));
    Tensor together;
    for (std::size_t m = 0; m < models_.size(); ++m) {
      Model& model = *models_[m].ours;
      if (model.steps_in_passes() && step.zero == Zero::kBefore) model.zero_grad(step.to_none);
      progress_(fmt::format("pass {}: forward of model {}", p, m));
      const bool is_odd =
          overflows && last && step.overflow == static_cast<int>(m) && step.overflow_rank == rank_;
      Tensor loss = loss_of(m, pass, is_odd);
      if (!loss.defined()) continue;
      loss = plan_.scaled ? scaler_.scale(loss) : loss;
      if (plan_.one_backward) {
        together = together.defined() ? together + loss : loss;
        continue;
      }
      progress_(fmt::format("pass {}: backward of model {}", p, m));
      model.backward(loss);
    }
    if (together.defined()) {
      progress_(fmt::format("pass {}: backward of both models", p));
      together.backward();
    }
    if (last) compare_gradients(step);
    for (std::size_t m = 0; m < models_.size(); ++m) {
      Model& model = *models_[m].ours;
      if (!model.steps_in_passes()) continue;
      progress_(fmt::format("pass {}: step of model {}", p, m));
      if (step.clip > 0) model.clip(step.clip);
      model.step();
      if (step.zero == Zero::kAfter) model.zero_grad(step.to_none);
    }
  }
}

void Training::do_ours(int number) {
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(number)];
  if (plan_.closure) {
    Model& model = *models_.front().ours;
    const ModelPlan& plan = plan_.models.front();
    model.optimizer().step([&] {
      model.zero_grad(step.to_none);
      progress_("forward within a closure");
      Tensor loss = loss_of(0, step.passes.front(), false);
      if (!loss.defined()) return torch::zeros({}, torch::kFloat64);  // no rows, no backward
      progress_("backward within a closure");
      loss.backward();
      const bool decides = plan.optimizer == OptimizerKind::kLbfgs && plan.has_ddp();
      if (!decides) return loss;
      return kolo::allreduce(loss.detach(), {.op = ReduceOp::kAverage});
    });
    return;
  }
  const bool in_passes = models_.front().ours->steps_in_passes();
  for (Pair& pair : models_)
    if (step.zero == Zero::kBefore && !in_passes) pair.ours->zero_grad(step.to_none);
  do_passes(step, true);
  for (std::size_t m = 0; m < models_.size() && !in_passes; ++m) {
    Model& model = *models_[m].ours;
    progress_(fmt::format("step of model {}", m));
    if (step.clip > 0) {
      if (plan_.scaled) scaler_.unscale_(model.optimizer());
      model.clip(step.clip);
    }
    if (step.halves) {
      progress_(fmt::format("halving the gradients of model {}", m));
      if (plan_.models[m].way == Way::kHorovod)
        dynamic_cast<ReducingOptimizer&>(model.optimizer()).synchronize();
      halve_gradients(model);
    }
    if (!plan_.scaled) {
      model.step();
    } else if (scaler_.step(model.optimizer()) != (step.overflow != static_cast<int>(m))) {
      throw Differs(fmt::format("the scaler has {} the step of model {}",
                                step.overflow == static_cast<int>(m) ? "taken" : "left out", m));
    }
  }
  if (plan_.scaled) scaler_.update();
  for (Pair& pair : models_)
    if (step.zero == Zero::kAfter && !in_passes) pair.ours->zero_grad(step.to_none);
}

void Training::do_alone(int number) {
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(number)];
  for (std::size_t m = 0; m < models_.size(); ++m) {
    Model& model = *models_[m].alone;
    if (plan_.closure) {
      model.optimizer().step([&] {
        model.zero_grad(step.to_none);
        Tensor loss = loss_alone(m, step, step.passes.front());
        loss.backward();
        return loss;
      });
      continue;
    }
    if (step.zero == Zero::kBefore) model.zero_grad(step.to_none);
    for (const PassPlan& pass : step.passes) loss_alone(m, step, pass).backward();
  }
}

void Training::end_alone(const StepPlan& step) {
  for (std::size_t m = 0; m < models_.size() && !plan_.closure; ++m) {
    Model& model = *models_[m].alone;
    if (step.clip > 0) model.clip(step.clip);
    if (step.halves) halve_gradients(model);
    if (step.overflow != static_cast<int>(m)) model.step();
    if (step.zero == Zero::kAfter) model.zero_grad(step.to_none);
  }
  alone_ended_ = true;
}

/// Makes a step that differs on one rank until `undo`: an error on all ranks that has `reason`, and
/// no parameter changes.
void Training::expect_refused(int number, const std::string& reason,
                              const std::function<void()>& undo) {
  progress_(fmt::format("a step that is refused for '{}'", reason));
  try {
    do_ours(number);
  } catch (const Exception& error) {
    undo();
    if (std::string(error.what()).find(reason) == std::string::npos) throw;
    return;
  }
  throw Differs(fmt::format("a step was not refused for '{}'", reason));
}

void Training::try_other_rate(int number) {
  const int odd = plan_.steps[static_cast<std::size_t>(number)].rate_apart;
  const ModelPlan& plan = plan_.models.front();
  // Only with models that compare rates, and whose step can be repeated.
  if (odd == kNever || plan.has_ddp() || plan.weighed || !can_redo()) return;
  torch::optim::Optimizer& optimizer = models_.front().ours->optimizer();
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  if (rank_ == odd) scale_rates(optimizer, 3);
  expect_refused(number, "lr of group 0 is ", [&] {
    for (std::size_t g = 0; g < rates.size(); ++g)
      optimizer.param_groups()[g].options().set_lr(rates[g]);
  });
}

void Training::try_other_size(int number) {
  const int odd = plan_.steps[static_cast<std::size_t>(number)].size_apart;
  const ModelPlan& plan = plan_.models.front();
  if (odd == kNever || plan.weighed || !can_redo()) return;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (!plan.may_change_size(plan.layers[i])) continue;
    Tensor parameter = models_.front().ours->network()->parameters_of(i).back();
    const auto resize = [&](const Tensor& data, const Tensor& gradient) {
      const torch::NoGradGuard no_grad;
      parameter.set_data(data);
      parameter.mutable_grad() = gradient;
    };
    // A step that was refused before may have left what is no gradient.
    models_.front().ours->zero_grad(plan_.steps[static_cast<std::size_t>(number)].to_none);
    const Tensor data = parameter.detach();
    const Tensor gradient = parameter.grad();
    if (rank_ == odd) resize(other_size(data), Tensor());
    return expect_refused(number, fmt::format("layer{}", i), [&] {
      if (rank_ == odd) resize(data, gradient);
    });
  }
}

void Training::try_left_out(int number) {
  const int odd = plan_.steps[static_cast<std::size_t>(number)].leaves_out;
  if (odd == kNever || !can_redo()) return;
  if (rank_ == odd) leave_out();
  expect_refused(number, "left out or repeated a batch", [] {});
}

ScribblingChild::Memory Training::gradients() const {
  ScribblingChild::Memory memory;
  for (const Pair& pair : models_)
    for (const Tensor& parameter : pair.ours->network()->parameters())
      if (const Tensor& gradient = parameter.grad(); gradient.defined() && gradient.is_cpu())
        memory.emplace_back(static_cast<std::byte*>(gradient.storage().mutable_data()),
                            gradient.storage().nbytes());
  return memory;
}

void Training::step(int number) {
  const StepPlan& step = plan_.steps[static_cast<std::size_t>(number)];
  remember();
  before_step(number);
  if (std::find(step.takes_part.begin(), step.takes_part.end(), true) == step.takes_part.end())
    return;
  const bool mine = step.takes_part[static_cast<std::size_t>(rank_)];
  alone_ended_ = false;
  do_alone(number);
  try_other_rate(number);
  try_other_size(number);
  try_left_out(number);
  ScribblingChild child(step.forks ? gradients() : ScribblingChild::Memory());
  if (mine) do_ours(number);
  child.end();
  end_alone(step);
  if (!mine) return;
  compare("after the step");
  if (join_ != nullptr) join_->step();
}

bool Training::next() {
  if (step_ == std::ssize(plan_.steps)) return false;
  step(step_);
  ++step_;
  return true;
}

void Training::run() {
  try {
    while (next()) continue;
  } catch (const std::exception& error) {
    throw Differs(fmt::format("step {}: {}", step_, error.what()));
  }
  progress_("ending");
}

}  // namespace kolo::test
