#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/schedulers.h>

namespace kolo {

void raise_no_groups() {
  raise(ErrorCode::kInvalidArgument,
        "the scheduler's optimizer has no parameters: it was moved into another; make the "
        "scheduler from that one");
}

void ReduceLROnPlateau::step(float metric) {
  if (optimizer_->param_groups().empty()) raise_no_groups();
  torch::optim::ReduceLROnPlateauScheduler::step(metric);
  metrics_.push_back(metric);
}

void ReduceLROnPlateau::save(torch::serialize::OutputArchive& archive) const {
  archive.write("metrics", torch::tensor(metrics_, torch::kFloat32), true);
}

void ReduceLROnPlateau::load(torch::serialize::InputArchive& archive) {
  if (!metrics_.empty()) {
    raise(ErrorCode::kInvalidArgument, "ReduceLROnPlateau has taken " +
                                           std::to_string(metrics_.size()) +
                                           " steps already; load the state into a new one");
  }
  torch::Tensor metrics;
  archive.read("metrics", metrics, true);
  std::vector<double> rates;
  for (auto& group : optimizer_->param_groups()) rates.push_back(group.options().get_lr());
  for (std::int64_t i = 0; i < metrics.numel(); ++i) step(metrics[i].item<float>());
  for (std::size_t i = 0; i < rates.size(); ++i) {
    optimizer_->param_groups()[i].options().set_lr(rates[i]);
  }
}

}  // namespace kolo
