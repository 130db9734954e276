#include <kolo/torch/grad_scaler.h>

#include "bindings/torch/gradients/backward.h"
#include "bindings/torch/tensors/equal_values.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/reducing_optimizer.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

[[noreturn]] void refuse(const std::string& what) {
  raise(ErrorCode::kInvalidArgument, "GradScaler: " + what);
}

constexpr const char* kOneScaler =
    "make it with the same options, and load its state, on every rank";

void check(const GradScalerOptions& options) {
  // The kernels take the scale as float32.
  if (!(options.init_scale > 0 && options.init_scale <= kLargest)) {
    refuse("init_scale is " + std::to_string(options.init_scale) +
           "; it is a finite float32 above 0");
  }
  if (!(options.growth_factor > 1 && options.growth_factor <= kLargest)) {
    refuse("growth_factor is " + std::to_string(options.growth_factor) + "; it is above 1");
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    refuse("backoff_factor is " + std::to_string(options.backoff_factor) +
           "; it is between 0 and 1");
  }
  if (options.growth_interval < 1) {
    refuse("growth_interval is " + std::to_string(options.growth_interval) + "; it is 1 or more");
  }
}

using Alike = std::pair<torch::Device, torch::ScalarType>;
struct ByText {
  bool operator()(const Alike& a, const Alike& b) const {
    return std::pair(a.first.str(), a.second) < std::pair(b.first.str(), b.second);
  }
};
/// Gradients by device and type; one kernel call takes one of these lists.
using Gradients = std::map<Alike, std::vector<torch::Tensor>, ByText>;

Gradients gradients_of(const torch::optim::Optimizer& optimizer) {
  Gradients result;
  std::set<const void*> seen;  // a tied weight may be listed twice
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const auto& parameters = optimizer.param_groups()[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& gradient = parameters[i].mutable_grad();
      if (!gradient.defined() || !seen.insert(parameters[i].unsafeGetTensorImpl()).second) continue;
      if (gradient.scalar_type() == torch::kFloat16) {
        refuse("the gradient of parameter " + std::to_string(i) + " of group " + std::to_string(g) +
               " is float16; keep parameters in float32 and run forward inside kolo::Autocast");
      }
      torch::Tensor values = gradient;
      if (gradient.is_sparse()) {
        gradient = gradient.coalesce();
        values = gradient._values();
      }
      result[{values.device(), values.scalar_type()}].push_back(values);
    }
  }
  return result;
}

/// Whether one of the gradients is not finite.
bool unscale(const Gradients& gradients, double scale) {
  bool overflow = false;
  for (const auto& [alike, tensors] : gradients) {
    const auto options = torch::TensorOptions().device(alike.first).dtype(torch::kFloat32);
    torch::Tensor found = torch::zeros({}, options);
    const torch::Tensor inverse = torch::full({}, 1.0 / scale, options);
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, inverse);
    overflow |= found.item<float>() > 0;
  }
  return overflow;
}

/// Collective: whether a rank has an overflow. Refuses on all ranks if none has a gradient, or if
/// their scalers differ.
bool agree_on(bool overflow, bool has_gradient, const EqualValues& values, const ProcessSet& set) {
  // The cells: number of ranks with an overflow, and number of ranks with a gradient.
  torch::Tensor told = torch::zeros({2 + static_cast<std::int64_t>(kNumberCells)}, torch::kInt32);
  auto* const ranks = told.mutable_data_ptr<std::int32_t>();
  ranks[0] = overflow ? 1 : 0;
  ranks[1] = has_gradient ? 1 : 0;
  tell_number(values.hash(), ranks + 2);
  allreduce_(told, {.process_set = set});
  if (ranks[1] == 0) refuse("no parameter of the optimizer has a gradient on any rank");
  if (!is_one_number(ranks + 2)) {
    TensorWork work = tell_lines(values.lines(), "", set);
    const std::string what = difference_of(work, set).text;
    if (!what.empty()) raise(ErrorCode::kMismatch, what + "; " + kOneScaler);
  }
  return ranks[0] > 0;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(static_cast<float>(options.init_scale)) {
  check(options);
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) {
  if (enabled() && update_is_due_) update();
  return scale_as_before(loss);
}

torch::Tensor GradScaler::scale_as_before(const torch::Tensor& loss) {
  if (!enabled()) return loss;
  has_scaled_ = true;
  // A tensor, not a number: its float32 wins over a half scalar's type, in which 65536 overflows.
  torch::Tensor scaled =
      loss * torch::full({}, scale_, loss.options().dtype(torch::kFloat32).requires_grad(false));
  tell_with_backward(scaled, values());
  return scaled;
}

EqualValues GradScaler::values() const {
  EqualValues values;
  values.add("GradScaler's scale", scale_);
  values.add("GradScaler's growth_tracker", static_cast<double>(growth_tracker_));
  values.add("GradScaler's growth_factor", options_.growth_factor);
  values.add("GradScaler's backoff_factor", options_.backoff_factor);
  values.add("GradScaler's growth_interval", static_cast<double>(options_.growth_interval));
  return values;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled()) return;
  if (!has_scaled_) {
    refuse(
        "no loss was scaled, so a division by the scale would make the gradients too small; call "
        "scale(loss).backward(), with an Accelerator its backward(loss), before unscale_() or "
        "step()");
  }
  const torch::NoGradGuard no_grad;
  Pass& pass = passes_[&optimizer];
  if (pass.stepped) refuse("unscale_() after step(); call update() once a step");
  if (pass.unscaled) refuse("unscale_() a second time for this optimizer since update()");
  auto* const reducing = dynamic_cast<ReducingOptimizer*>(&optimizer);
  if (reducing != nullptr) {
    reducing->synchronize();
    reducing->skip_synchronize();
  }
  const Gradients gradients = gradients_of(optimizer);
  bool overflow = unscale(gradients, scale_);
  const bool has_share = reducing != nullptr && !reducing->same_gradients_on_every_rank();
  if (options_.extra_agreement || has_share) {
    const ProcessSet its_ranks = reducing != nullptr ? reducing->process_set() : ProcessSet();
    overflow =
        agree_on(overflow, !gradients.empty(), values(), options_.process_set.value_or(its_ranks));
  } else if (gradients.empty()) {
    refuse("no parameter of the optimizer has a gradient; call it after backward()");
  }
  pass.overflow = overflow;
  pass.unscaled = true;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!enabled()) {
    optimizer.step();
    return true;
  }
  if (passes_[&optimizer].stepped) refuse("step() a second time for this optimizer since update()");
  if (!passes_[&optimizer].unscaled) unscale_(optimizer);
  Pass& pass = passes_[&optimizer];
  pass.stepped = true;
  if (!pass.overflow) optimizer.step();
  return !pass.overflow;
}

void GradScaler::update() {
  if (!enabled()) return;
  bool stepped = false;
  bool overflow = false;
  for (const auto& [optimizer, pass] : passes_) {
    stepped |= pass.unscaled;
    overflow |= pass.overflow;
  }
  if (!stepped) refuse("update() without a step() or unscale_() since the last one");
  passes_.clear();
  update_is_due_ = false;
  if (overflow) {
    growth_tracker_ = 0;
    const auto smaller = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
    if (smaller > 0) scale_ = smaller;
  } else if (++growth_tracker_ >= options_.growth_interval) {
    growth_tracker_ = 0;
    const auto larger = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
    if (std::isfinite(larger)) scale_ = larger;
  }
}

void GradScaler::update_later() {
  if (!enabled()) return;
  if (passes_.empty()) refuse("update_later() without a step() or unscale_() since update()");
  update_is_due_ = true;
}

void GradScaler::update(double scale) {
  if (!enabled()) return;
  if (!(scale > 0 && scale <= kLargest)) {
    refuse("update(" + std::to_string(scale) + "): a scale is a finite float32 above 0");
  }
  passes_.clear();
  update_is_due_ = false;
  scale_ = static_cast<float>(scale);
}

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  if (update_is_due_) {
    GradScaler updated = *this;
    updated.update();
    return updated.save(archive);
  }
  archive.write("scale", torch::IValue(static_cast<double>(scale_)));
  archive.write("growth_factor", torch::IValue(options_.growth_factor));
  archive.write("backoff_factor", torch::IValue(options_.backoff_factor));
  archive.write("growth_interval", torch::IValue(options_.growth_interval));
  archive.write("growth_tracker", torch::IValue(growth_tracker_));
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&archive](const char* key) {
    torch::IValue value;
    archive.read(key, value);
    return value;
  };
  GradScalerOptions loaded = options_;
  loaded.init_scale = read("scale").toDouble();
  loaded.growth_factor = read("growth_factor").toDouble();
  loaded.backoff_factor = read("backoff_factor").toDouble();
  loaded.growth_interval = read("growth_interval").toInt();
  const std::int64_t tracker = read("growth_tracker").toInt();
  check(loaded);
  if (tracker < 0) refuse("growth_tracker is " + std::to_string(tracker) + "; it is 0 or more");
  scale_ = static_cast<float>(loaded.init_scale);
  loaded.init_scale = options_.init_scale;
  options_ = loaded;
  growth_tracker_ = tracker;
  passes_.clear();
  update_is_due_ = false;
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const GradScaler& scaler) {
  scaler.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           GradScaler& scaler) {
  scaler.load(archive);
  return archive;
}

}  // namespace kolo
