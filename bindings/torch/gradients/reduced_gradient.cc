// Sends a gradient to the other ranks; reduced_gradient_finish.cc takes it back.
#include "bindings/torch/gradients/reduced_gradient.h"

#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/tensors/agreed_layout.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <utility>

namespace kolo {
namespace {

/// The tensor's version counter; nothing if others share its storage, whose writes count, too.
std::optional<std::int64_t> version_of(const torch::Tensor& tensor) {
  const bool counts = tensor.defined() && !tensor.is_inference() &&
                      (tensor.is_sparse() ||
                       (tensor.layout() == torch::kStrided && tensor.storage().use_count() == 1));
  return counts ? std::optional<std::int64_t>(tensor._version()) : std::nullopt;
}

}  // namespace

torch::Tensor add_up(torch::Tensor a, torch::Tensor b) {
  // Only a dense tensor takes both.
  return a.is_sparse() && !b.is_sparse() ? b.add_(a) : a.add_(b);
}

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() && b.defined() && a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl();
}

bool is_changed(const torch::Tensor& tensor, const std::optional<std::int64_t>& version) {
  return version && tensor._version() != *version;
}

ReducedGradient::ReducedGradient(std::string name, torch::Tensor parameter,
                                 const ReductionSettings& settings)
    : name_(std::move(name)), parameter_(std::move(parameter)), settings_(settings) {
  if (settings.options.sparse_as_dense || settings.options.op == ReduceOp::kAdasum)
    is_sparse_ = false;
}

void ReducedGradient::enter(GradientGroup& group) {
  group_ = &group;
  if (group.is_listed()) is_sparse_ = false;
}

void ReducedGradient::install(const std::weak_ptr<GradientListener>& listener, std::size_t index) {
  if (hooks_.installed() || !parameter_.requires_grad()) return;
  hooks_ = GradientHooks(parameter_, listener, index);
}

template <class Action>
void ReducedGradient::attempt(Action&& action) {
  if (refusal_.empty()) refusal_ = failure_of(std::forward<Action>(action));
}

void ReducedGradient::refuse_sparse(const std::string& why) const {
  raise(ErrorCode::kUnsupported, "the gradient of parameter '" + name_ + "' is sparse" + why +
                                     "; set sparse_as_dense, or make its embedding with dense "
                                     "gradients");
}

torch::Tensor ReducedGradient::admit() {
  torch::Tensor& gradient = parameter_.mutable_grad();
  if (!gradient.is_sparse()) return gradient;
  if (settings_.options.sparse_as_dense) {
    gradient = gradient.to_dense();
  } else if (group_->is_listed()) {
    refuse_sparse(", and a group's gradients are dense");
  } else if (settings_.options.op == ReduceOp::kAdasum) {
    refuse_sparse(", and adasum combines dense gradients");
  }
  return gradient;
}

void ReducedGradient::separate(torch::Tensor& gradient) {
  // Autograd may have used a view of a buffer that another parameter's gradient views, too, or that
  // autograd still reads. The sum over the ranks must not be written there.
  if (gradient.layout() != torch::kStrided || gradient.storage().use_count() == 1) return;
  gradient = gradient.clone();
  parameter_.mutable_grad() = gradient;
}

void ReducedGradient::submit(torch::Tensor gradient, bool absent) {
  passes_ = 0;
  wanted_ = false;
  const std::optional<std::int64_t> version = version_of(gradient);
  if (refusal_.empty()) note_sparse(gradient.is_sparse());
  sent_ = {std::move(gradient), version, absent, {}};
  state_ = State::kWaiting;
  attempt([&] { group_->add_ready(sent_.tensor.device()); });
  group_->start_if_ready();
}

void ReducedGradient::start(TensorWork work) {
  state_ = State::kUnderWay;
  refusal_.clear();
  sent_.work = std::move(work);
}

torch::Tensor ReducedGradient::compress() {
  const torch::Tensor& gradient = sent_.tensor;
  Compressor& compressor = *settings_.options.compression;
  const auto refuse = [this](const std::string& why) {
    raise(ErrorCode::kInvalidArgument, "parameter '" + name_ + "': " + why);
  };
  const auto call = [&](const char* name, auto&& action) {
    const std::string why = failure_of(action);
    if (!why.empty()) refuse(std::string(name) + " has failed: " + why);
  };
  torch::ScalarType type = {};
  call("wire_type()", [&] { type = compressor.wire_type(gradient.scalar_type()); });
  if (sent_.absent) return torch::zeros_like(gradient, gradient.options().dtype(type));
  torch::Tensor wire;
  call("compress()", [&] { wire = compressor.compress(name_, gradient); });
  if (wire.sizes() != gradient.sizes() || wire.scalar_type() != type)
    refuse(
        "compress() must keep the gradient's shape and return the type that wire_type() promises");
  return wire;
}

TensorGroupMember ReducedGradient::load() {
  torch::Tensor& gradient = sent_.tensor;
  const bool is_ours = !is_changed(gradient, sent_.version);
  double weight = 1;
  if (settings_.options.weigh_by_samples && !sent_.absent) {
    if (!settings_.samples.mine()) {
      raise(ErrorCode::kInvalidArgument,
            "parameter '" + name_ +
                "': weigh_by_samples needs set_sample_count() before each step's backward");
    }
    weight = static_cast<double>(*settings_.samples.mine()) /
             settings_.options.gradient_predivide_factor;
  }
  if (gradient.is_sparse()) {
    // Autograd may still read the memory of its values.
    const torch::Tensor weighed = weight == 1 ? gradient : gradient * weight;
    return {weighed, weighed, name_, sent_.absent};
  }
  if (weight != 1) gradient.mul_(weight);
  const torch::Tensor wire = settings_.options.compression ? compress() : gradient;
  // A compressor may work in the gradient's memory.
  if (is_ours) sent_.version = version_of(gradient);
  return {wire, wire, name_, sent_.absent};
}

void ReducedGradient::before_accumulation() {
  accumulation_ = Accumulation::kAdds;
  attempt([&] { take_up_pass(); });
  if (refusal_.empty()) return;
  // Autograd adds to the gradient even then.
  show();
  drop();
}

void ReducedGradient::take_up_pass() {
  if (settings_.options.weigh_by_samples &&
      (state_ == State::kUnderWay || is_same(parameter_.grad(), sent_.tensor))) {
    raise(ErrorCode::kUnsupported,
          "parameter '" + name_ +
              "': a second backward before zero_grad(), which weigh_by_samples does not take");
  }
  const bool touched = show();
  if (state_ == State::kWaiting) {
    state_ = State::kIdle;
    if (touched || is_changed(sent_.tensor, sent_.version)) raise_touched("changed");
    sent_.tensor = torch::Tensor();  // it has not left yet, so the new pass is simply added
    return;
  }
  if (touched && state_ != State::kUnderWay) raise_touched("changed");
  finish(touched);
  const bool was_done = std::exchange(state_, State::kIdle) == State::kReduced;
  set_aside(was_done);
  if (parameter_.grad().defined()) return;
  accumulation_ = Accumulation::kMakes;
  made_.reset();
}

void ReducedGradient::set_aside(bool was_done) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter_.mutable_grad();
  if (gradient.defined() && (was_done || is_same(gradient, sent_.tensor))) {
    // A gradient that is already reduced must not be reduced again with the new pass.
    earlier_ = earlier_.defined() ? add_up(earlier_, gradient) : std::move(gradient);
    gradient = torch::Tensor();
  } else if (passes_ == 0) {
    earlier_ = torch::Tensor();  // the gradient was cleared meanwhile
  }
  sent_.tensor = torch::Tensor();
}

void ReducedGradient::after_accumulation() {
  // Also called if a function's backward gives no gradient; then nothing is accumulated.
  const Accumulation accumulation = std::exchange(accumulation_, Accumulation::kNone);
  if (accumulation == Accumulation::kNone) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor gradient = parameter_.grad();
  attempt([&] {
    refuse_graph("DistributedOptimizer", name_, gradient);
    gradient = admit();
    if (accumulation == Accumulation::kMakes) {
      separate(gradient);
      made_ = gradient;
    }
  });
  if (++passes_ >= settings_.options.backward_passes_per_step) submit(std::move(gradient), false);
}

void ReducedGradient::catch_up(const std::weak_ptr<GradientListener>& listener, std::size_t index) {
  if (hooks_.installed() || !parameter_.requires_grad()) return;
  install(listener, index);
  if (!parameter_.grad().defined()) return;
  accumulation_ = Accumulation::kMakes;
  after_accumulation();
}

void ReducedGradient::submit_missing(const std::string& why) {
  if (!takes_part() || pending()) return;
  // A gradient that is done goes with the rest of its group.
  if (group_->done()) return;
  if (refusal_.empty()) refusal_ = why;
  const torch::NoGradGuard no_grad;
  const bool touched = show();
  torch::Tensor gradient = parameter_.grad();
  attempt([&] {
    if (touched) raise_touched("changed");
    gradient = admit();
  });
  if (!refusal_.empty() || is_new()) {
    submit(std::move(gradient), false);
    return;
  }
  // No new gradient on this rank. Others may have one; an old one is still added to it.
  earlier_ = std::move(gradient);
  made_.reset();
  parameter_.mutable_grad() = torch::Tensor();
  torch::Tensor zeros;
  attempt([&] {
    zeros = is_sparse_.value_or(false)
                ? torch::sparse_coo_tensor(parameter_.sizes(), parameter_.options())
                : zero_gradient_of(parameter_);
  });
  submit(std::move(zeros), true);
}

bool ReducedGradient::is_new() const {
  const torch::Tensor& gradient = parameter_.grad();
  return takes_part() && gradient.defined() && state_ != State::kReduced &&
         !is_same(gradient, sent_.tensor);
}

}  // namespace kolo
