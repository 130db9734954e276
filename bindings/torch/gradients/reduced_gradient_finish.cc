// Takes a reduced gradient back from the other ranks, and hides it until then.
#include "bindings/core/step_scope.h"
#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/gradients/reduced_gradient.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/sparse_parts.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <utility>

namespace kolo {

void ReducedGradient::hide() {
  torch::Tensor& gradient = parameter_.mutable_grad();
  if (hidden_ && is_same(gradient, hidden_->stand_in)) return;
  const bool is_taken = !gradient.defined() || gradient.layout() == torch::kStrided ||
                        gradient.layout() == torch::kSparse;
  if (!is_taken) return;  // it is refused
  const bool is_local = passes_ > 0 && gradient.defined();
  if (!is_local && !(pending() && is_same(gradient, sent_.tensor))) return;
  // Bool, because LibTorch's clipping accepts floats without memory silently.
  const auto nowhere = gradient.options().device(torch::kMeta).dtype(torch::kBool);
  hidden_ = {gradient, gradient.is_sparse()
                           ? torch::empty(gradient.sizes(), nowhere.layout(torch::kStrided))
                           : torch::empty_like(gradient, nowhere)};
  gradient = hidden_->stand_in;
}

bool ReducedGradient::show() {
  if (!hidden_) return false;
  Hidden hidden = std::move(*hidden_);
  hidden_.reset();
  torch::Tensor& gradient = parameter_.mutable_grad();
  // A gradient that only this rank has may be cleared or replaced.
  if (!is_same(gradient, hidden.stand_in)) return state_ == State::kUnderWay;
  gradient = std::move(hidden.gradient);
  return hidden.stand_in._version() != 0;
}

void ReducedGradient::raise_touched(const char* how) const {
  raise(
      ErrorCode::kInvalidArgument,
      "the gradient of parameter '" + name_ + "' was " + how +
          " while it was under way, as backward() leaves it where not all ranks have one for the "
          "parameter or its group, or it lacks passes; call the optimizer's synchronize() before, "
          "or its clip_grad_norm(), or clear it by its zero_grad()");
}

void ReducedGradient::finish(bool touched) {
  if (state_ == State::kWaiting) {  // its group could not start
    state_ = State::kIdle;
    sent_.tensor = torch::Tensor();
    refusal_.clear();
  }
  if (state_ != State::kUnderWay) return;
  state_ = State::kIdle;
  TensorWork work = std::exchange(sent_.work, {});
  // Computed before this function writes.
  const bool changed = touched || is_changed(sent_.tensor, sent_.version);
  const torch::Tensor result = await(work);
  state_ = State::kReduced;
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter_.mutable_grad();
  torch::Tensor earlier = std::exchange(earlier_, {});
  if (sent_.absent) {
    if (gradient.defined()) return;  // set by hand meanwhile
    if (!result.defined()) {
      gradient = std::move(earlier);
      sent_.tensor = gradient;
      return;
    }
    gradient = sent_.tensor;
    made_ = gradient;
  } else if (!is_untouched(gradient, touched, changed)) {
    return;
  }
  decode(result, gradient);
  if (earlier.defined()) gradient = add_up(std::move(gradient), earlier);
  sent_.tensor = gradient;
}

torch::Tensor ReducedGradient::await(TensorWork& work) const {
  torch::Tensor result;
  try {
    result = settings_.step.await(work);
  } catch (const OutOfStep&) {
    throw;
  } catch (const Exception& error) {
    const std::string what = error.what();
    if (error.code() != ErrorCode::kMismatch || what.find("allgather") == std::string::npos) throw;
    raise(ErrorCode::kMismatch,
          what +
              "; a sparse gradient travels by allgather and a dense one by allreduce, so it is "
              "to be of one kind on all ranks: set sparse_as_dense");
  }
  if (!sent_.tensor.is_sparse())
    return sent_.absent && work.contributors() == 0 ? torch::Tensor() : result;
  const TensorAllreduceOptions options = group_->reduction();
  torch::Tensor sum = sum_of_sparse_parts(result, "parameter '" + name_ + "'", options.process_set);
  if (!sum.defined()) return sum;
  const double divisor = options.op == ReduceOp::kAverage ? work.participants() : 1;
  sum._values().mul_(options.postscale / divisor);  // so it stays coalesced
  return sum;
}

bool ReducedGradient::is_untouched(const torch::Tensor& gradient, bool touched,
                                   bool changed) const {
  const bool is_sent = is_same(gradient, sent_.tensor);
  if (gradient.defined() && (changed || !is_sent)) raise_touched(is_sent ? "changed" : "replaced");
  if (!gradient.defined() && touched) raise_touched("cleared");
  return gradient.defined();  // else cleared by hand
}

void ReducedGradient::decompress(const torch::Tensor& wire, const torch::Tensor& gradient) const {
  try {
    settings_.options.compression->decompress(name_, wire, gradient);
  } catch (const Exception&) {
    throw;  // the other ranks know
  } catch (const std::exception& error) {
    const std::string what =
        "parameter '" + name_ + "': decompress() has failed: " + reason_of(error);
    const std::string me = "rank " + std::to_string(rank()) + ": ";
    abort(what);  // the other ranks have their gradient already
    raise(ErrorCode::kAborted, me + what);
  }
}

void ReducedGradient::decode(const torch::Tensor& result, torch::Tensor& gradient) const {
  if (result.is_sparse()) {
    gradient = result;
  } else if (settings_.options.compression) {
    decompress(result, gradient);
  }
  if (settings_.options.weigh_by_samples) {
    if (settings_.samples.all() <= 0) {
      raise(ErrorCode::kInvalidArgument,
            "parameter '" + name_ + "' has a gradient, but set_sample_count() told 0 on all ranks");
    }
    torch::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
    values.div_(static_cast<double>(settings_.samples.all()) /
                settings_.options.gradient_predivide_factor);
  }
}

void ReducedGradient::settle() {
  if (state_ != State::kReduced) return;
  state_ = State::kIdle;
  sent_.tensor = parameter_.grad();
}

void ReducedGradient::drop() {
  sent_.work.drain();
  sent_.work = {};
  state_ = State::kIdle;
}

void ReducedGradient::discard(bool stays) {
  show();
  drop();
  wanted_ = false;
  refusal_.clear();
  sent_.tensor = torch::Tensor();
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
