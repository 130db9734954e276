// Takes a reduced gradient back from the other ranks, and hides it until then.
#include "bindings/torch/gradients/reduced_gradient.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <utility>

namespace kolo {

void ReducedGradient::hide() {
  torch::Tensor& gradient = parameter_.mutable_grad();
  if (is_same(gradient, hidden_)) return;
  if (gradient.defined() && gradient.layout() != torch::kStrided) return;  // it is refused
  const bool is_local = passes_ > 0 && gradient.defined();
  if (!is_local && !(pending() && is_same(gradient, reduced_))) return;
  covered_ = gradient;
  // Bool, because LibTorch's clipping accepts floats without memory silently.
  hidden_ =
      torch::empty_like(gradient, gradient.options().device(torch::kMeta).dtype(torch::kBool));
  touched_ = false;
  gradient = hidden_;
}

void ReducedGradient::show() {
  if (!hidden_.defined()) return;
  const torch::Tensor hidden = std::exchange(hidden_, {});
  torch::Tensor covered = std::exchange(covered_, {});
  torch::Tensor& gradient = parameter_.mutable_grad();
  const bool is_there = is_same(gradient, hidden);
  // A gradient that only this rank has may be cleared or replaced.
  touched_ = is_there ? hidden._version() != 0 : work_.valid();
  if (is_there) gradient = std::move(covered);
}

void ReducedGradient::raise_touched(const char* how) const {
  raise(
      ErrorCode::kInvalidArgument,
      "the gradient of parameter '" + name_ + "' was " + how +
          " while it was under way, as backward() leaves it where not all ranks have one for the "
          "parameter or its group, or it lacks passes; call the optimizer's synchronize() before, "
          "or its clip_grad_norm(), or clear it by its zero_grad()");
}

void ReducedGradient::finish() {
  show();
  const bool was_touched = std::exchange(touched_, false);
  if (std::exchange(waiting_, false)) {  // its group could not start
    reduced_ = torch::Tensor();
    refusal_.clear();
  }
  if (!work_.valid()) return;
  TensorWork work = std::exchange(work_, {});
  const bool changed =
      was_touched || is_changed(reduced_, version_);  // computed before this function writes
  const torch::Tensor result = settings_.step->await(work);
  done_ = true;
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter_.mutable_grad();
  torch::Tensor earlier = std::exchange(earlier_, {});
  if (absent_) {
    if (gradient.defined()) return;  // set by hand meanwhile
    if (work.contributors() == 0) {
      gradient = std::move(earlier);
      reduced_ = gradient;
      return;
    }
    gradient = reduced_;
    made_ = gradient;
  } else if (!gradient.defined()) {
    if (was_touched) raise_touched("cleared");
    return;  // cleared by hand
  } else if (changed || !is_same(gradient, reduced_)) {
    raise_touched(is_same(gradient, reduced_) ? "changed" : "replaced");
  }
  if (compressed_) {
    // The other ranks have theirs already.
    abort_on_failure([&] { settings_.options.compression->decompress(name_, result, gradient); },
                     [&] { return "parameter '" + name_ + "': decompress() has failed"; });
  }
  if (settings_.options.weigh_by_samples) {
    if (settings_.total_samples.value_or(0) <= 0) {
      raise(ErrorCode::kInvalidArgument,
            "parameter '" + name_ + "' has a gradient, but set_sample_count() told 0 on all ranks");
    }
    gradient.div_(static_cast<double>(*settings_.total_samples) /
                  settings_.options.gradient_predivide_factor);
  }
  if (earlier.defined()) gradient.add_(earlier);
  reduced_ = gradient;
}

void ReducedGradient::settle() {
  if (std::exchange(done_, false)) reduced_ = parameter_.grad();
}

void ReducedGradient::discard(bool stays) {
  show();
  touched_ = false;
  waiting_ = false;
  done_ = false;
  wanted_ = false;
  refusal_.clear();
  work_.drain();
  work_ = {};
  reduced_ = torch::Tensor();
  earlier_ = torch::Tensor();
  passes_ = 0;
  if (!stays) {
    made_.reset();
    shared_memory_.release();
    return;
  }
  if (!settings_.options.shared_gradients || settings_.options.compression) return;
  // A gradient that the user has set keeps its memory: other code may know the address.
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter_.mutable_grad();
  if (!is_same(gradient, made_) || shared_memory_.give(gradient)) made_.reset();
}

}  // namespace kolo
