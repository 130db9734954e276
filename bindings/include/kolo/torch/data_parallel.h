// DataParallel: one process, several devices. (After PyTorch's class of the same name.) Each
// forward distributes the batch over replicas of the module, one for each device, which compute at
// the same time. Backward adds their gradients to those of the module, so any LibTorch optimizer
// steps as with one device. It needs no kolo::init() and does not communicate with other processes.
//
//   const std::vector<torch::Device> devices = {{torch::kCUDA, 0}, {torch::kCUDA, 1}};
//   kolo::DataParallel model(network, {.device_ids = devices});
//   torch::optim::SGD optimizer(model.parameters(), 0.1);
//   torch::nll_loss(model.forward(images), target.to(model.output_device())).backward();
//   optimizer.step();
//
// - The module is on the first device and computes the first part itself. So its buffers (running
//   statistics) are those of the first part, as in PyTorch. The buffers of the other replicas are
//   dropped.
// - Tensors among forward's arguments are split along dimension 0. Other arguments go to every
//   replica. A batch with fewer samples than devices leaves some devices idle.
// - Each forward copies the parameters to the other devices. On the first device they are shared.
//   {cpu, cpu} makes two replicas on the CPU.
// - The module must be cloneable: its class derives from torch::nn::Cloneable.
// - A replica computes on the calling thread's current stream of its device.
// - Replicas on one device draw random numbers (dropout) in any order.
// - Used by one thread at a time. DistributedDataParallel with one process a device is faster.
#pragma once

#include <kolo/torch/module_wrapper.h>
#include <kolo/torch/replicas.h>
#include <torch/nn/module.h>

#include <optional>
#include <utility>
#include <vector>

namespace kolo {

struct DataParallelOptions {
  /// Empty: all CUDA devices that this process sees, or the CPU if there are none.
  std::vector<torch::Device> device_ids = {};
  /// Device of forward's result. Absent: the first device.
  std::optional<torch::Device> output_device = std::nullopt;
};

/// Makes the replicas for `module`. Throws what the constructor of Replicas throws.
KOLO_API Replicas make_replicas(const torch::nn::Module& module,
                                const DataParallelOptions& options);

/// `M` is a module holder (TORCH_MODULE, torch::nn::Linear, …) or a shared pointer to a module.
template <class M>
class DataParallel : public ModuleWrapper<DataParallel<M>, M> {
  using Wrapper = ModuleWrapper<DataParallel<M>, M>;

 public:
  /// Throws what the constructor of Replicas throws.
  explicit DataParallel(M module, const DataParallelOptions& options = {})
      : Wrapper(std::move(module)), replicas_(make_replicas(*this->module_, options)) {}

  /// Returns the result of the module's forward: tensors, or tuples, pairs, arrays, optionals and
  /// vectors of tensors. Throws what Replicas::forward() throws.
  template <class... Arguments>
  auto forward(const Arguments&... arguments) {
    return replicas_.forward(pointer_of(this->held()), arguments...);
  }

  torch::Device output_device() const { return replicas_.output_device(); }

 private:
  Replicas replicas_;
};

}  // namespace kolo
