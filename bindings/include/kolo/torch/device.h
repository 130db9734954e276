// The device of this process. Any thread.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <string>

namespace kolo {

/// The device that this rank computes on: its CUDA device (kolo::device_ordinal()) where it has one
/// and kolo is built with LibTorch's CUDA half; else the CPU. Throws kShutdown before kolo::init().
KOLO_API torch::Device device();

/// What the user of a program asks for: "auto" is device(), "cpu" the CPU, "cuda" this rank's CUDA
/// device. Throws kUnsupported where there is none, with the reason; kInvalidArgument for anything
/// else.
KOLO_API torch::Device device(const std::string& wanted);

}  // namespace kolo
