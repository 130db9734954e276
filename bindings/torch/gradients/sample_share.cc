#include "bindings/torch/gradients/sample_share.h"

#include "bindings/core/refusals.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

namespace kolo {

void SampleShare::check(std::int64_t samples) {
  if (samples >= 0) return;
  raise(ErrorCode::kInvalidArgument,
        "set_sample_count(" + std::to_string(samples) + "): a count is not negative");
}

void SampleShare::tell(std::int64_t samples, const std::string& name, const ProcessSet& set) {
  sums_.drain();
  mine_ = samples;
  sums_ = allreduce_async_(torch::tensor({samples, std::int64_t{samples == 0}}, torch::kInt64),
                           {.name = name, .process_set = set});
}

void SampleShare::refuse(const std::string& when, const std::string& name, const ProcessSet& set) {
  refused_ = true;
  auto refused = refuse_allreduces(
      {name}, "weigh_by_samples needs set_sample_count() before each " + when, "", set);
  sums_ = TensorWork({.work = std::move(refused.front()), .result = {}});
}

void SampleShare::hear(StepCount& step) {
  if (!sums_.valid()) return;
  TensorWork work = std::exchange(sums_, {});
  const torch::Tensor sums = step.await(work);
  all_ = sums[0].item<std::int64_t>();
  idle_ranks_ = sums[1].item<std::int64_t>();
  participants_ = work.participants();
}

std::optional<std::int64_t> SampleShare::end() {
  refused_ = false;
  idle_ranks_ = 0;
  return std::exchange(mine_, std::nullopt);
}

void SampleShare::drop() {
  sums_.drain();
  sums_ = {};
  end();
}

}  // namespace kolo
