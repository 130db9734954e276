#include "bindings/torch/gradients/optimizer_archive.h"
#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/objects.h>
#include <kolo/torch/optimizer_state.h>

#include <optional>

namespace kolo {
namespace {

Parcel parcel_of(torch::optim::Optimizer& optimizer) {
  try {
    torch::serialize::OutputArchive archive;
    save_optimizer(optimizer, archive);
    return {.bytes = bytes_of(archive)};
  } catch (const std::exception& exception) {
    return {.failure = "the optimizer cannot be saved: " + reason_of(exception)};
  }
}

}  // namespace

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root) {
  check_initialized("broadcast_optimizer_state()");
  const bool is_root = rank() == root;
  const std::string bytes = broadcast_bytes(is_root ? parcel_of(optimizer) : Parcel(), root,
                                            {.name = "broadcast_optimizer_state"});
  Parcel outcome;
  std::optional<OptimizerBefore> before;
  outcome.failure = failure_of([&] {
    // The ranks of a ShardedOptimizer compare what they have loaded.
    if (is_root && dynamic_cast<ShardedState*>(&optimizer) == nullptr) return;
    before.emplace(optimizer);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size(), torch::kCPU);
    load_optimizer(optimizer, archive);
    check_state_sizes(optimizer);
  });
  if (!outcome.failure.empty()) {
    outcome.failure = "broadcast_optimizer_state: it cannot take the state of rank " +
                      std::to_string(root) + ": " + outcome.failure +
                      "; make the same optimizer on every rank";
  }
  try {
    allgather_bytes(outcome, {.name = "broadcast_optimizer_state/outcome"});
  } catch (...) {
    if (before) before->restore();
    throw;
  }
}

}  // namespace kolo
