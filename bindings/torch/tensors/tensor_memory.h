// What the core needs to know about a tensor: its type and shape, or why it cannot be used. Private
// to bindings/torch; pure.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <memory>
#include <string>

namespace kolo {

/// Throws kInvalidArgument for an undefined tensor or one on a CUDA device that is not this rank's.
/// Throws kUnsupported for a type, layout or device that kolo does not take. Messages name the
/// tensor.
DataType data_type_of(const torch::Tensor& tensor, const std::string& name);
/// The type by which operations that only move elements carry the tensor: an integer type of equal
/// width if kolo does not reduce its type (uint16, float8). So ranks whose types differ, but not in
/// width, are not told if both are such types. Throws as data_type_of() does.
DataType moved_type_of(const torch::Tensor& tensor, const std::string& name);
/// Why a rank with CUDA device `ordinal` (−1: none) cannot take a tensor on `device`; empty if it
/// can.
std::string device_misfit(torch::Device device, int ordinal);
/// Throws kInvalidArgument unless both are on the same device.
void check_one_device(const torch::Tensor& a, const torch::Tensor& b, const std::string& name);
/// Throws kInvalidArgument unless both have the same shape, type and device.
void check_alike(const torch::Tensor& input, const torch::Tensor& output, const std::string& name);
/// Warns, once per `call`, if a call that returns a new tensor gets one that requires a gradient.
/// Autograd does not see the call, so the gradient would be lost. kolo::autograd has `call`, too.
void warn_of_lost_gradient(const torch::Tensor& tensor, const char* call);
Shape shape_of(const torch::Tensor& tensor);
/// Whether memory holds the elements as they are and in order. LibTorch may leave a conjugation or
/// a negation to the reader.
bool is_plain(const torch::Tensor& tensor);
/// The tensor itself if is_plain(), else a plain copy.
torch::Tensor plain(const torch::Tensor& tensor);
/// A contiguous tensor whose storage owns `memory`, which lies on the options' device. A CUDA
/// device must have an index.
torch::Tensor on_memory(std::shared_ptr<void> memory, torch::IntArrayRef sizes,
                        const torch::TensorOptions& options);
/// Throws a kolo::Exception.
[[noreturn]] void raise(ErrorCode code, std::string message);

}  // namespace kolo
