// Forward and backward of SyncBatchNorm. Forward runs on user threads, backward on autograd's.
#include <kolo/torch/sync_batch_norm.h>

#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/collective_function.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace kolo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// All dimensions except the channels'.
std::vector<std::int64_t> other_dimensions(const torch::Tensor& input) {
  std::vector<std::int64_t> result{0};
  for (std::int64_t d = 2; d < input.dim(); ++d) result.push_back(d);
  return result;
}

/// Reshapes one value per channel so that it broadcasts along the channels' dimension of `input`.
torch::Tensor by_channel(const torch::Tensor& values, const torch::Tensor& input,
                         torch::ScalarType type) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.to(type).view(shape);
}

/// The type in which values of a half type are summed.
torch::ScalarType wide(const torch::Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

/// Statistics over all ranks' batches, float64 by channel.
struct Statistics {
  torch::Tensor mean;
  torch::Tensor variance;  ///< divided by the count
  torch::Tensor count;     ///< values per channel; on the input's device, so that no host waits
};

/// Name of the all-reduce in one direction. It blocks, so layers of one kind can share a name.
std::string name_of(const torch::Tensor& input, const char* direction) {
  return fmt::format("SyncBatchNorm of {} channels, {} on {}", input.size(1), direction,
                     input.is_cuda() ? "cuda" : "cpu");
}

[[noreturn]] void raise_too_few(std::int64_t values) {
  raise(ErrorCode::kInvalidArgument,
        "SyncBatchNorm: a channel has " + std::to_string(values) +
            " values in the batches of all ranks together; training takes 2 or more");
}

Statistics statistics_of(const torch::Tensor& input, const ProcessSet& set) {
  const std::int64_t channels = input.size(1);
  const std::int64_t here = input.numel() / std::max<std::int64_t>(channels, 1);
  // The sums, then the sums of squares, then the count in the last element.
  torch::Tensor sums = torch::zeros({2 * channels + 1}, input.options().dtype(torch::kFloat64));
  if (here > 0) {
    auto [variance, mean] =
        torch::var_mean(input.to(wide(input)), other_dimensions(input), /*unbiased=*/false);
    // Use float64 from here on: the mean of squares minus the squared mean then loses no precision
    // that the local variance has.
    mean = mean.to(torch::kFloat64);
    sums.narrow(0, 0, channels).copy_(mean).mul_(here);
    sums.narrow(0, channels, channels).copy_(mean.square() + variance).mul_(here);
    sums.narrow(0, 2 * channels, 1).fill_(static_cast<double>(here));
  }
  sums = allreduce_(sums, {.name = name_of(input, "forward"), .process_set = set});
  const torch::Tensor count = sums[2 * channels];
  // A rank with two values knows that there are enough. Only ranks with fewer read the count,
  // because reading makes the host wait.
  if (here < 2 && !(count.item<double>() > 1))
    raise_too_few(static_cast<std::int64_t>(count.item<double>()));
  const torch::Tensor mean = sums.narrow(0, 0, channels) / count;
  const torch::Tensor square = sums.narrow(0, channels, channels) / count;
  return {mean, (square - mean.square()).clamp_min_(0), count};
}

struct Normalize : CollectiveFunction<Normalize> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const std::optional<torch::Tensor>& weight,
                               const std::optional<torch::Tensor>& bias,
                               const Statistics& statistics, double epsilon,
                               const ProcessSet& set) {
    const torch::Tensor inverse = (statistics.variance + epsilon).rsqrt();
    context->save_for_backward(
        {input, weight.value_or(torch::Tensor()), statistics.mean, inverse, statistics.count});
    context->saved_data["set"] = static_cast<std::int64_t>(set.id());
    const torch::ScalarType type = wide(input);
    torch::Tensor factor = inverse;
    if (weight) factor = factor * *weight;
    torch::Tensor output = (input.to(type) - by_channel(statistics.mean, input, type))
                               .mul_(by_channel(factor, input, type));
    if (bias) output.add_(by_channel(*bias, input, type));
    return output.to(input.scalar_type());
  }

  static variable_list gradients(AutogradContext* context, variable_list outer) {
    if (torch::GradMode::is_enabled()) {
      raise(ErrorCode::kUnsupported,
            "SyncBatchNorm: backward with create_graph; it has no second derivative");
    }
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor& input = saved[0];
    const torch::Tensor& weight = saved[1];
    const torch::Tensor& inverse = saved[3];
    const torch::ScalarType type = wide(input);
    const torch::Tensor& count = saved[4];
    const ProcessSet set(static_cast<std::uint32_t>(context->saved_data["set"].toInt()));
    const auto dimensions = other_dimensions(input);

    const torch::Tensor gradient = outer[0].to(type);
    const torch::Tensor centred = input.to(type) - by_channel(saved[2], input, type);
    const torch::Tensor sum = gradient.sum(dimensions).to(torch::kFloat64);
    const torch::Tensor product = (gradient * centred).sum(dimensions).to(torch::kFloat64);
    variable_list result(6);
    if (weight.defined()) {
      result[1] = (product * inverse).to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    if (context->needs_input_grad(0)) {
      const torch::Tensor all = allreduce_(
          torch::stack({sum, product}), {.name = name_of(input, "backward"), .process_set = set});
      torch::Tensor factor = inverse;
      if (weight.defined()) factor = factor * weight;
      const torch::Tensor slope = all[1] / count * inverse.square();
      torch::Tensor mine = gradient - by_channel(all[0] / count, input, type);
      mine.sub_(centred * by_channel(slope, input, type)).mul_(by_channel(factor, input, type));
      result[0] = mine.to(input.scalar_type());
    }
    return result;
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                                     ProcessSet process_set)
    : NormImplBase(norm_options), process_set_(process_set) {}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (!input.is_floating_point()) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("SyncBatchNorm of {} channels: the input is of type {}; give floating-point "
                      "numbers, as by to(torch::kFloat32)",
                      options.num_features(), torch::toString(input.scalar_type())));
  }
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  std::ostringstream shape;
  shape << input.sizes();
  raise(ErrorCode::kInvalidArgument, "SyncBatchNorm of " + std::to_string(options.num_features()) +
                                         " channels: the input is " + shape.str() + "; it is [n, " +
                                         std::to_string(options.num_features()) + ", ...]");
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (is_training()) check_initialized("SyncBatchNorm");
  if (is_training() && process_set_.size() == 1) {
    const std::int64_t values = input.numel() / std::max<std::int64_t>(input.size(1), 1);
    if (values < 2) raise_too_few(values);
  }
  double momentum = options.momentum().value_or(0);
  const bool updates = is_training() && options.track_running_stats();
  if (updates && !options.momentum()) momentum = 1.0 / (num_batches_tracked.item<double>() + 1);
  if (!is_training() || process_set_.size() == 1) {
    torch::Tensor output =
        torch::batch_norm(input, weight, bias, running_mean, running_var,
                          is_training() || !options.track_running_stats(), momentum, options.eps(),
                          torch::globalContext().userEnabledCuDNN());
    if (updates) num_batches_tracked += 1;
    return output;
  }
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = statistics_of(input.detach(), process_set_);
    if (updates) {
      num_batches_tracked += 1;
      running_mean.lerp_(statistics.mean.to(running_mean.scalar_type()), momentum);
      const torch::Tensor unbiased =
          statistics.variance * (statistics.count / (statistics.count - 1));
      running_var.lerp_(unbiased.to(running_var.scalar_type()), momentum);
    }
  }
  const auto if_defined = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return Normalize::apply(input, if_defined(weight), if_defined(bias), statistics, options.eps(),
                          process_set_);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "kolo::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum().has_value()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ')';
}

}  // namespace kolo
