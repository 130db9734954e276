#include "bindings/torch/gradients/sample_share.h"

#include "bindings/core/refusals.h"

#include <kolo/torch/functions.h>

#include <utility>

namespace kolo {
namespace {

constexpr const char* kName = "samples";

}  // namespace

void SampleShare::tell(const std::string& prefix, std::int64_t samples) {
  if (samples < 0) {
    raise(ErrorCode::kInvalidArgument,
          "set_sample_count(" + std::to_string(samples) + "): a count is not negative");
  }
  sum_.drain();
  samples_ = samples;
  sum_ = allreduce_async_(torch::tensor({samples}, torch::kInt64), {.name = prefix + kName});
}

void SampleShare::agree(const std::string& prefix) {
  const auto samples = std::exchange(samples_, std::nullopt);
  if (!samples) {
    for (const auto& work :
         refuse_allreduces({prefix + kName},
                           "weigh_by_samples needs set_sample_count() before each backward that "
                           "communicates",
                           "", {}))
      synchronize(*work);  // throws
    return;
  }
  TensorWork sum = std::exchange(sum_, {});
  const auto all = sum.wait().item<std::int64_t>();
  if (all == 0)
    raise(ErrorCode::kInvalidArgument,
          "DistributedDataParallel: set_sample_count() told 0 on all "
          "ranks, so that this step has no average");
  weight_ = static_cast<double>(*samples) * sum.participants() / static_cast<double>(all);
}

void SampleShare::weigh(const torch::Tensor& gradients) const {
  const torch::NoGradGuard no_grad;
  // A mean of no samples is NaN, and stays NaN when multiplied by 0.
  if (weight_ == 0) {
    gradients.zero_();
  } else if (weight_ != 1) {
    gradients.mul_(weight_);
  }
}

}  // namespace kolo
