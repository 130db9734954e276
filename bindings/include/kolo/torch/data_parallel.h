// DataParallel: one process, several devices. Each forward deals the batch out to replicas of the
// module, one a device, which compute at the same time; backward adds their gradients up in the
// module's own, so that any LibTorch optimizer steps as with one device. (After PyTorch's class of
// the same name.) It needs no kolo::init() and talks to no other process.
//
//   kolo::DataParallel model(network, {.device_ids = {torch::Device("cuda:0"), …}});
//   torch::nll_loss(model.forward(images), target.to(model.output_device())).backward();
//
// What is defined:
// - The module is on the first device and computes the first part itself: its buffers (running
//   statistics) are those of that part, as in PyTorch; those of the other replicas are dropped.
// - Tensors among forward's arguments are dealt out along dimension 0; other arguments go to every
//   replica. A batch of fewer samples than devices leaves devices out.
// - Parameters are copied to the other devices in each forward; on the first device they
//   are shared. {cpu, cpu} is two replicas on the CPU.
// - The module can be cloned: its class derives from torch::nn::Cloneable.
// - A replica computes on what is the calling thread's current stream of its device.
// - Random numbers (dropout) on one device are drawn by its replicas in any order.
//
// Used by one thread at a time. DistributedDataParallel with one process a device is faster.
#pragma once

#include <kolo/torch/module_wrapper.h>
#include <kolo/torch/replicas.h>
#include <torch/torch.h>

#include <optional>
#include <utility>
#include <vector>

namespace kolo {

struct DataParallelOptions {
  /// Empty: every CUDA device that this process sees, or the CPU where there is none.
  std::vector<torch::Device> device_ids = {};
  /// Where forward's result is; absent: on the first device.
  std::optional<torch::Device> output_device = std::nullopt;
};

/// Of `options`, for `module`; throws as Replicas's constructor.
KOLO_API Replicas make_replicas(const torch::nn::Module& module,
                                const DataParallelOptions& options);

/// `M` is a module holder (TORCH_MODULE, torch::nn::Linear, …) or a shared pointer to a module.
template <class M>
class DataParallel : public ModuleWrapper<DataParallel<M>, M> {
  using Wrapper = ModuleWrapper<DataParallel<M>, M>;

 public:
  /// Throws as Replicas's constructor.
  explicit DataParallel(M module, const DataParallelOptions& options = {})
      : Wrapper(std::move(module)), replicas_(make_replicas(*module_, options)) {}

  /// What the module's forward returns: tensors, or tuples, pairs, arrays, optionals and vectors of
  /// them. Throws as Replicas::forward().
  template <class... Arguments>
  auto forward(const Arguments&... arguments) {
    return replicas_.forward(pointer_of(module_), arguments...);
  }

  torch::Device output_device() const { return replicas_.output_device(); }

 private:
  using Wrapper::module_;
  Replicas replicas_;
};

}  // namespace kolo
