#include "bindings/torch/gradients/state_comparison.h"

#include "bindings/torch/tensors/fingerprint.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

constexpr std::int64_t kLongestInterval = 128;

std::vector<torch::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

double norm_of(const torch::Tensor& tensor) {
  return tensor.detach().abs().to(torch::kFloat64).norm().item<double>();
}

}  // namespace

StateComparison::StateComparison(Options options)
    : options_(std::move(options)), is_due_(options_.parameters && !options_.begins_equal) {}

void StateComparison::tell(std::int32_t* cells) {
  std::fill_n(cells, kCells, 0);
  told_loss_ = std::exchange(loss_, {});
  if (options_.process_set.size() == 1) return;
  const auto tell_kind = [cells](Kind kind, std::optional<std::uint32_t> number) {
    tell_number(number, cells + kind * kNumberCells);
  };
  if (!optimizer_.empty() || options_.trained)
    tell_kind(kOptimizer, optimizer_.hash() + (options_.trained ? options_.trained() : 0) +
                              (has_dropped_ ? 1U << 16 : 0));
  if (!told_loss_.empty()) tell_kind(kLoss, told_loss_.hash());
  if (!options_.parameters || has_parted_) return;
  if (is_due_) {
    try {
      tell_kind(kParameters, fingerprint_of(tensors_of(options_.parameters())));
    } catch (const c10::Error&) {
      // For example no memory for a copy: training goes on without the comparison.
    }
  } else if (since_ + 1 >= interval_) {
    cells[kCells - 1] = 1;
  }
}

void StateComparison::hear(const std::int32_t* sums, int participants) {
  ++messages_;
  ++since_;
  is_due_ = sums[kCells - 1] > 0 && !has_parted_;
  if (participants < options_.process_set.size()) return;
  for (const Kind kind : {kOptimizer, kLoss})
    if (is_settled() && !is_one_number(sums + kind * kNumberCells)) start_exchange(kind);
  const std::int32_t* const parameters = sums + kParameters * kNumberCells;
  // A rank that comes late from a join may not know yet that a comparison is due. Other differences
  // have priority.
  if (tellers(parameters) < participants || !is_settled()) return;
  since_ = 0;
  if (is_one_number(parameters)) {
    equal_at_ = messages_;
    interval_ = std::min(2 * interval_, kLongestInterval);
    return;
  }
  has_parted_ = true;
  is_due_ = false;
  start_exchange(kParameters);
}

std::vector<std::string> StateComparison::lines_of(Kind kind) const {
  if (kind == kLoss) return told_loss_.lines();
  std::vector<std::string> lines;
  if (kind == kOptimizer) {
    if (!options_.trained) return optimizer_.lines();
    // First, for other values differ because of it.
    lines.push_back(
        fmt::format("use of the last averages\t{}",
                    has_dropped_ ? "none, for zero_grad() came without step()" : "made by step()"));
    for (std::string& line : optimizer_.lines()) lines.push_back(std::move(line));
    for (const auto& [name, tensor] : options_.parameters())
      lines.push_back(
          fmt::format("requires_grad of parameter '{}'\t{}", name, tensor.requires_grad()));
    return lines;
  }
  for (const auto& [name, tensor] : options_.parameters())
    if (tensor.layout() == torch::kStrided)
      lines.push_back(fmt::format("the norm of parameter '{}'\t{:.9g} (bits {:08x})", name,
                                  norm_of(tensor), fingerprint_of({tensor})));
  return lines;
}

void StateComparison::start_exchange(Kind kind) {
  differs_ = kind;
  std::vector<std::string> lines;
  try {
    lines = lines_of(kind);
  } catch (const c10::Error&) {
    // No memory: only the other ranks tell their values.
  }
  exchange_ = tell_lines(lines, options_.prefix + "compared", options_.process_set);
}

void StateComparison::settle() {
  if (is_settled()) return;
  TensorWork work = std::exchange(exchange_, {});
  const auto [what, first] = difference_of(work, options_.process_set);
  if (differs_ == kParameters) {
    if (rank() == first) warn(what);
    return;
  }
  if (what.empty()) return;
  const bool is_loss = differs_ == kLoss;
  raise(ErrorCode::kMismatch,
        fmt::format("{}: {}; {}", options_.holder, what,
                    is_loss ? "give every rank's GradScaler and optimizers the same options, and "
                              "load their state on every rank"
                            : "have the same on every rank: make the same steps, freeze the same "
                              "parameters, load a checkpoint on all of them or call "
                              "broadcast_optimizer_state(), and "
                              "give schedulers one metric, as metric_average() makes it"));
}

void StateComparison::forget() {
  exchange_.drain();
  exchange_ = {};
}

void StateComparison::warn(const std::string& what) const {
  if (equal_at_ == 0 && !options_.begins_equal) {
    TORCH_WARN(
        "kolo: ", options_.holder,
        ": the ranks' parameters differ before the first step, so each "
        "trains a network of its own by the average of all gradients (",
        what,
        "); call "
        "kolo::broadcast_parameters(*model, 0) before training, also after a checkpoint that one "
        "rank alone has loaded");
    return;
  }
  TORCH_WARN(
      "kolo: ", options_.holder, ": the ranks' parameters have parted: they were equal at ",
      "backward ", equal_at_, " and are not at backward ", messages_, " (", what,
      "), so each trains a network of its own by the average of all gradients. Load a checkpoint, "
      "and change parameters, optimizer and learning rate, on all ranks alike; "
      "kolo::broadcast_parameters(*model, 0) and kolo::broadcast_optimizer_state(optimizer, 0) "
      "make them equal again. Where the norms are equal but for their last digits, ranks' "
      "processors may compute differently, which training bears");
}

}  // namespace kolo
