#include <kolo/torch/data_parallel.h>
#include <kolo/torch/replicas.h>
#include <kolo/torch/sync_batch_norm.h>

#include "bindings/torch/tensors/device_stream.h"
#include "bindings/torch/tensors/replica_threads.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <optional>

namespace kolo {
namespace {

/// A copy of the module on `device`. Throws kUnsupported if LibTorch cannot make one.
std::shared_ptr<torch::nn::Module> clone_of(const std::string& who, const torch::nn::Module& module,
                                            torch::Device device) {
  try {
    return module.clone(device);
  } catch (const c10::Error& error) {
    raise(ErrorCode::kUnsupported,
          who + ": " + module.name() + " cannot be cloned for " + device.str() + " (" +
              error.what_without_backtrace() +
              "); derive it and its members from torch::nn::Cloneable and register parameters, "
              "buffers and modules in reset()");
  }
}

/// Gives `copy` the value of `original` on the copy's device, and sends its gradient to `original`.
void link(torch::Tensor copy, const torch::Tensor& original, torch::Device device) {
  // Not view_as(): its backward reshapes the gradient, and a sparse gradient cannot be reshaped.
  const torch::Tensor same =
      original.device() == device ? at::alias(original) : original.to(device);
  const torch::NoGradGuard no_grad;
  copy.set_data(same.detach());
  if (same.grad_fn() != nullptr) {
    torch::autograd::impl::set_gradient_edge(copy, torch::autograd::impl::gradient_edge(same));
  }
}

}  // namespace

std::vector<torch::Device> complete_devices(std::vector<torch::Device> devices) {
  for (torch::Device& device : devices) {
    if (device.is_cpu()) device = torch::Device(torch::kCPU);
    if (device.is_cuda() && !device.has_index() && torch::cuda::is_available()) {
      device = torch::empty({0}, torch::TensorOptions().device(device)).device();
    }
  }
  return devices;
}

BatchShares::BatchShares(const std::vector<torch::Tensor>& tensors,
                         std::vector<torch::Device> devices)
    : devices_(std::move(devices)) {
  std::int64_t all = -1;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.dim() == 0) continue;
    if (all < 0) all = tensor.size(0);
    if (tensor.size(0) == all) continue;
    raise(ErrorCode::kMismatch,
          "a batch is dealt out along dimension 0, but its tensors have sizes " +
              std::to_string(all) + " and " + std::to_string(tensor.size(0)) + " there");
  }
  const auto most = static_cast<std::int64_t>(devices_.size());
  rows_ = std::max<std::int64_t>((std::max<std::int64_t>(all, 0) + most - 1) / most, 1);
  count_ = all <= 0 ? 1 : static_cast<std::size_t>((all + rows_ - 1) / rows_);
}

torch::Tensor BatchShares::part(const torch::Tensor& tensor, std::size_t replica) const {
  if (!tensor.defined()) return tensor;
  const torch::Device device = devices_[replica];
  if (tensor.dim() == 0 || count_ == 1) return tensor.to(device);
  const auto begin = static_cast<std::int64_t>(replica) * rows_;
  return tensor.narrow(0, begin, std::min(rows_, tensor.size(0) - begin)).to(device);
}

torch::Tensor gather_tensors(const std::vector<torch::Tensor>& parts, torch::Device device) {
  std::vector<torch::Tensor> moved;
  for (const torch::Tensor& part : parts) {
    if (part.defined() != parts.front().defined()) {
      raise(ErrorCode::kMismatch,
            "forward returned an undefined tensor on one replica, but a tensor on another; which "
            "are defined must not depend on the data");
    }
    moved.push_back(part.defined() ? part.to(device) : part);
  }
  if (moved.size() == 1 || !moved.front().defined()) return moved.front();
  return moved.front().dim() == 0 ? torch::stack(moved) : torch::cat(moved);
}

void raise_uneven_outputs(std::size_t first, std::size_t other) {
  raise(ErrorCode::kMismatch, "forward returned " + std::to_string(first) +
                                  " tensors on the first replica, but " + std::to_string(other) +
                                  " on another; their number must not depend on the data");
}

struct Replicas::State {
  std::string who;
  std::vector<torch::Device> devices;
  torch::Device output_device;
  ReplicaThreads threads;

  void check(const torch::nn::Module& module) const {
    const auto check_one = [&](const std::string& kind, const auto& named) {
      if (named.value().device() == devices.front()) return;
      raise(ErrorCode::kInvalidArgument,
            who + ": " + kind + " '" + named.key() + "' is on " + named.value().device().str() +
                ", but the first device is " + devices.front().str() + "; move the module there");
    };
    for (const auto& named : module.named_parameters()) check_one("parameter", named);
    for (const auto& named : module.named_buffers()) check_one("buffer", named);
  }
};

Replicas::Replicas(std::string who, const torch::nn::Module& module,
                   std::vector<torch::Device> devices, torch::Device output_device)
    : state_(new State{std::move(who),
                       complete_devices(std::move(devices)),
                       complete_devices({output_device}).front(),
                       {}}) {
  state_->check(module);
  if (state_->devices.size() == 1) return;
  for (const auto& part : module.named_modules()) {
    if (part.value()->as<SyncBatchNorm>() == nullptr) continue;
    raise(ErrorCode::kUnsupported, state_->who + ": '" + part.key() +
                                       "' is a SyncBatchNorm, which takes one replica a process; "
                                       "start a process per device");
  }
  static_cast<void>(replicate(module, 2));
}

Replicas::~Replicas() = default;
Replicas::Replicas(Replicas&&) noexcept = default;
Replicas& Replicas::operator=(Replicas&&) noexcept = default;

torch::Device Replicas::output_device() const { return state_->output_device; }

BatchShares Replicas::deal(const torch::nn::Module& module,
                           const std::vector<torch::Tensor>& tensors) const {
  state_->check(module);
  return BatchShares(tensors, state_->devices);
}

std::vector<std::shared_ptr<torch::nn::Module>> Replicas::replicate(const torch::nn::Module& module,
                                                                    std::size_t count) const {
  // Tensors made in InferenceMode cannot take over the memory of tensors made outside. Leaving the
  // mode enables gradients again, so they are disabled here; the guards end in reverse order.
  std::optional<c10::InferenceMode> normal;
  std::optional<torch::NoGradGuard> no_grad;
  if (c10::InferenceMode::is_enabled()) {
    normal.emplace(false);
    no_grad.emplace();
  }
  std::vector<std::shared_ptr<torch::nn::Module>> replicas;
  const auto originals = module.named_parameters();
  for (std::size_t i = 1; i < count; ++i) {
    const torch::Device device = state_->devices[i];
    replicas.push_back(clone_of(state_->who, module, device));
    const auto copies = replicas.back()->named_parameters();
    for (const auto& original : originals) {
      const torch::Tensor* const copy = copies.find(original.key());
      if (copy == nullptr) {
        raise(ErrorCode::kUnsupported, state_->who + ": a clone of " + module.name() +
                                           " lacks parameter '" + original.key() +
                                           "'; clone() must copy all of the module");
      }
      link(*copy, original.value(), device);
    }
  }
  return replicas;
}

void Replicas::run(std::size_t count, const std::function<void(std::size_t)>& compute) {
  // The current stream is a property of a thread. The replicas compute on the caller's streams,
  // where their parameters and inputs were copied and where their results will be read.
  std::vector<c10::Stream> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(stream_of(state_->devices[i]));
  state_->threads.run(count, [&](std::size_t i) {
    const c10::StreamGuard guard(streams[i]);
    compute(i);
  });
}

Replicas make_replicas(const torch::nn::Module& module, const DataParallelOptions& options) {
  std::vector<torch::Device> devices = options.device_ids;
  if (devices.empty()) {
    for (torch::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
      devices.emplace_back(torch::kCUDA, i);
    }
  }
  if (devices.empty()) devices.emplace_back(torch::kCPU);
  const torch::Device output = options.output_device.value_or(devices.front());
  return Replicas("DataParallel", module, std::move(devices), output);
}

void refuse_no_module() {
  raise(ErrorCode::kInvalidArgument,
        "DistributedDataParallel or DataParallel: it has no module, because it was moved away or "
        "got an empty one; use what it was moved to, or make the module first");
}

}  // namespace kolo
