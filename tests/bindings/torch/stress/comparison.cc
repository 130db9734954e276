// What must be equal in a random training: kolo's values and one process's, and the ranks' bits.
#include "tests/bindings/torch/stress/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kolo::test {

using torch::Tensor;

void Training::compare(const std::string& what, const Tensor& ours, const Tensor& alone,
                       double tolerance) const {
  if (ours.defined() != alone.defined())
    throw Differs(fmt::format("{} is {}defined, alone it is {}defined", what,
                              ours.defined() ? "" : "un", alone.defined() ? "" : "un"));
  if (!ours.defined() || ours.numel() == 0) return;
  if (ours.sizes() != alone.sizes() || ours.scalar_type() != alone.scalar_type())
    throw Differs(fmt::format("{} is {} {} instead of {} {}", what,
                              torch::toString(ours.scalar_type()), fmt::join(ours.sizes(), "x"),
                              torch::toString(alone.scalar_type()), fmt::join(alone.sizes(), "x")));
  const torch::NoGradGuard no_grad;
  const Tensor off = (ours - alone).abs() / (1 + alone.abs());
  const Tensor flat = off.reshape({-1});
  const Tensor bad = flat.isnan().logical_or(flat > tolerance);
  if (!bad.any().item<bool>()) return;
  const auto at = flat.isnan().any().item<bool>()
                      ? flat.isnan().to(torch::kInt).argmax().item<std::int64_t>()
                      : flat.argmax().item<std::int64_t>();
  const auto value = [at](const Tensor& tensor) {
    const Tensor one = tensor.reshape({-1})[at];
    return one.is_complex() ? fmt::format("{:.12g}+{:.12g}i", torch::real(one).item<double>(),
                                          torch::imag(one).item<double>())
                            : fmt::format("{:.12g}", one.item<double>());
  };
  throw Differs(fmt::format("{} [{}] is {} instead of {}; {} of {} elements are off", what, at,
                            value(ours), value(alone), bad.sum().item<std::int64_t>(),
                            flat.numel()));
}

void Training::compare(const std::string& when) const {
  for (std::size_t m = 0; m < models_.size(); ++m) {
    NetworkImpl& ours = *models_[m].ours->network();
    NetworkImpl& alone = *models_[m].alone->network();
    const auto each = [&](const auto& mine, const auto& theirs) {
      for (const auto& item : mine)
        compare(fmt::format("{}: '{}' of model {}", when, item.key(), m), item.value(),
                theirs[item.key()], plan_.models[m].tolerance());
    };
    each(ours.named_parameters(), alone.named_parameters());
    each(ours.named_buffers(), alone.named_buffers());
  }
}

void Training::compare_gradients(const StepPlan& step) const {
  if (plan_.scaled) return;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    const ModelPlan& plan = plan_.models[m];
    if (!models_[m].ours->shows_gradients()) continue;
    if (plan.way == Way::kHorovod && plan.rests != Rests::kNone && step.passes.size() > 1) continue;
    NetworkImpl& alone = *models_[m].alone->network();
    const auto theirs = alone.named_parameters();
    for (const auto& item : models_[m].ours->network()->named_parameters())
      compare(fmt::format("the gradient of '{}' of model {}", item.key(), m), item.value().grad(),
              theirs[item.key()].grad(), plan.tolerance());
  }
}

std::string Training::digest() const {
  std::string bytes;
  for (const Pair& pair : models_) {
    NetworkImpl& network = *pair.ours->network();
    for (const auto& tensors : {network.parameters(), network.buffers()}) {
      for (const Tensor& tensor : tensors) {
        const Tensor whole = tensor.detach().contiguous();
        bytes.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
      }
    }
  }
  return std::to_string(std::hash<std::string>()(bytes));
}

}  // namespace kolo::test
