// SyncBatchNorm: a batch norm that in training uses the mean and variance over the batches of all
// ranks. So small batches on many ranks train as one large batch would. (After PyTorch's class of
// the same name; Ioffe and Szegedy, "Batch Normalization", ICML 2015.)
//
//   torch::nn::Sequential network(torch::nn::Conv2d(3, 64, 3),
//                                 kolo::SyncBatchNorm(64));
//   kolo::convert_sync_batchnorm(*other);  // or convert the batch norms of a module
//   kolo::DistributedDataParallel ddp(network);
//
// - In training, forward and its backward are collective, with one all-reduce each. It sums values
//   and counts for each channel, so batches may differ in size between ranks, and may be empty.
// - Layers run in the same order on every rank. Errors and the timeline call them "SyncBatchNorm of
//   64 channels, forward on cpu".
// - The gradient of the input is that of the sum over ranks of each rank's loss. The gradients of
//   weight and bias are this rank's part, which DistributedDataParallel or DistributedOptimizer
//   then averages.
// - Running statistics are the same on every rank. eval(), and a process set of one rank, do not
//   communicate.
// - Parameters, buffers and their names are those of torch::nn::BatchNorm, so files fit both.
// - Only one replica a process: DataParallel, and a DistributedDataParallel with several
//   device_ids, refuse a module that has a SyncBatchNorm.
// - On a CUDA device the host waits for the agreement of the ranks, not for the device. It does
//   wait for the device if a channel has a single value on this rank, and with cumulative averages
//   (momentum nullopt).
// - Used by one thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <ostream>

namespace kolo {

/// Takes inputs [n, channels, …] of two or more dimensions, like BatchNorm1d, 2d and 3d.
class KOLO_API SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// `norm_options` as for torch::nn::BatchNorm. `process_set`: the ranks whose batches count.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                             ProcessSet process_set = {});
  /// Replaces `norm`, a batch norm of LibTorch: uses the same parameters and the memory of its
  /// buffers. E.g. bn = replace_module("bn", kolo::SyncBatchNorm(*plain)).
  template <std::size_t D, class Norm>
  explicit SyncBatchNormImpl(
      const torch::nn::NormImplBase<D, Norm, torch::nn::BatchNormOptions>& norm,
      ProcessSet process_set = {})
      : SyncBatchNormImpl(norm.options, process_set) {
    for (const auto& [name, tensor] : norm.named_parameters(false).pairs())
      parameters_[name] = tensor;
    weight = norm.weight;
    bias = norm.bias;
    for (const auto& [name, tensor] : norm.named_buffers(false).pairs())
      named_buffers(false)[name].set_data(tensor);
    train(norm.is_training());
  }

  /// Throws kInvalidArgument for an input with other dimensions or channels, or whose type is not
  /// floating-point. Also throws it on every rank if a channel has only one value in all batches
  /// together, because its variance is unknown. Its backward throws kUnsupported with create_graph.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 private:
  void _check_input_dim(const torch::Tensor& input) override;

  ProcessSet process_set_;
};
TORCH_MODULE(SyncBatchNorm);

/// Replaces each BatchNorm1d, 2d and 3d in the Sequential containers of `module` by a
/// SyncBatchNorm, at any depth. `module` may be such a container. The parameters are taken over, so
/// optimizers made before stay valid. Returns the number of replaced modules.
///
/// If a batch norm is a member of another module, C++ has bound that module's forward to the
/// member's type. Then convert_sync_batchnorm() throws kUnsupported, names these members and
/// changes nothing. Declare them as kolo::SyncBatchNorm.
KOLO_API std::size_t convert_sync_batchnorm(torch::nn::Module& module, ProcessSet process_set = {});

}  // namespace kolo
