// SyncBatchNorm: a batch norm whose mean and variance in training are those of all ranks' batches
// together, so that small batches on many ranks train as one large batch would. (After PyTorch's
// class of the same name; Ioffe and Szegedy, "Batch Normalization", ICML 2015.)
//
// What is defined:
// - Forward in training and its backward are collective, one all-reduce each: sums and counts of
//   each channel, so batches may differ in size between ranks, down to none. They come in one order
//   on every rank; errors and the timeline call them "SyncBatchNorm of 64 channels, forward on
//   cpu".
// - The gradient of the input is that of the sum over ranks of each rank's loss; those of weight
//   and bias are this rank's part, which DistributedDataParallel or DistributedOptimizer then
//   average.
// - Running statistics are the same on every rank. eval() talks to nobody, as does a set of one
//   rank.
// - Parameters, buffers and their names are those of torch::nn::BatchNorm, so files fit both.
// - One replica a process: DataParallel and a DistributedDataParallel with several device_ids
//   refuse a module that has one.
// - On a CUDA device the host waits for the ranks' agreement, not for the device, but where a
//   channel has a single value on this rank, and with cumulative averages (momentum nullopt).
//
// Used by one thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/torch.h>

#include <cstddef>
#include <ostream>

namespace kolo {

/// For inputs [n, channels, …] of two dimensions or more: what BatchNorm1d, 2d and 3d take.
class KOLO_API SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// `norm_options` as of torch::nn::BatchNorm; `process_set`: the ranks whose batches count.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                             ProcessSet process_set = {});
  /// In the place of `norm`, one of LibTorch's: with its parameters themselves and its buffers'
  /// memory. E.g. bn = replace_module("bn", kolo::SyncBatchNorm(*plain)).
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

  /// Throws kInvalidArgument for an input of other dimensions or channels, and on every rank if a
  /// channel has one value in all batches together, whose variance is unknown.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 private:
  void _check_input_dim(const torch::Tensor& input) override;

  ProcessSet process_set_;
};
TORCH_MODULE(SyncBatchNorm);

/// Puts a SyncBatchNorm in the place of each BatchNorm1d, 2d and 3d of the Sequential containers in
/// `module`, itself one or not, at any depth. It takes over the parameters themselves, so
/// optimizers made before stay right. Returns how many there were.
///
/// Throws kUnsupported, and changes nothing, where a batch norm is a member of another module,
/// whose forward C++ has bound to the member's type: the message names these. Declare them as
/// kolo::SyncBatchNorm there.
KOLO_API std::size_t convert_sync_batchnorm(torch::nn::Module& module, ProcessSet process_set = {});

}  // namespace kolo
