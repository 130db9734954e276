// What the core needs to know of a tensor: its type and shape, or why it cannot be taken. Private
// to bindings/torch; pure.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <memory>
#include <string>

namespace kolo {

/// Throws kInvalidArgument for an undefined tensor or one on a CUDA device that is not this rank's,
/// kUnsupported for a type, layout or device that kolo does not take; the message names the tensor.
DataType data_type_of(const torch::Tensor& tensor, const std::string& name);
/// Why a tensor on `device` cannot be taken by a rank that has CUDA device `ordinal` (−1: none);
/// empty if it can.
std::string device_misfit(torch::Device device, int ordinal);
/// Throws kInvalidArgument unless both are on one device.
void check_one_device(const torch::Tensor& a, const torch::Tensor& b, const std::string& name);
/// Throws kInvalidArgument unless both have one shape, type and device.
void check_alike(const torch::Tensor& input, const torch::Tensor& output, const std::string& name);
/// Warns, once each, of a call whose result is a new tensor, which autograd does not see: it would
/// leave out the gradient of what `tensor` depends on. `call` is one that kolo::autograd has, too.
void warn_of_lost_gradient(const torch::Tensor& tensor, const char* call);
Shape shape_of(const torch::Tensor& tensor);
/// Whether memory holds the elements as they are and in order: LibTorch may have left a conjugate
/// or a sign to whoever reads them.
bool is_plain(const torch::Tensor& tensor);
/// The tensor, or a copy of it that is_plain().
torch::Tensor plain(const torch::Tensor& tensor);
/// A contiguous tensor whose storage holds `memory`, which is on the options' device: with its
/// index, if that is CUDA.
torch::Tensor on_memory(std::shared_ptr<void> memory, torch::IntArrayRef sizes,
                        const torch::TensorOptions& options);
/// Throws a kolo::Exception.
[[noreturn]] void raise(ErrorCode code, std::string message);

}  // namespace kolo
