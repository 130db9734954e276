// The device of this process. Any thread.
//
//   model->to(kolo::device());  // this rank's CUDA device, or the CPU
#pragma once

#include <kolo/export.h>
#include <torch/types.h>

#include <string>

namespace kolo {

/// The device that this rank computes on. It is the rank's CUDA device (kolo::device_ordinal()), if
/// it has one and kolo is built with LibTorch's CUDA half; otherwise the CPU. Throws kShutdown
/// before kolo::init().
KOLO_API torch::Device device();

/// The device that a program's user asks for: "auto" is device(), "cpu" is the CPU, "cuda" is this
/// rank's CUDA device. Throws kUnsupported, with the reason, if there is no such device. Throws
/// kInvalidArgument for other words.
KOLO_API torch::Device device(const std::string& wanted);

}  // namespace kolo
