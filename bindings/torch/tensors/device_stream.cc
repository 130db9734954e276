// Uses only c10's device interface, which every LibTorch has. One code serves builds without CUDA
// and tests with a device of their own.
#include "bindings/torch/tensors/device_stream.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// A template, so that an older LibTorch compiles, whose streams do not expose their handles.
template <class Stream>
void* handle_of(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    raise(ErrorCode::kUnsupported,
          "this LibTorch does not tell the handles of its streams; tensors on " +
              stream.device().str() + " need a later one, of 2.11 or more");
  }
}

}  // namespace

c10::Stream stream_of(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

std::optional<CudaStream> current_stream(torch::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return CudaStream{handle_of(stream_of(device))};
}

Allocator allocator_of(std::shared_ptr<torch::Tensor> output, const torch::TensorOptions& options) {
  const torch::Device device = options.device();
  return [output = std::move(output), options, inference = c10::InferenceMode::is_enabled(),
          stream = device.is_cpu() ? std::nullopt
                                   : std::optional(stream_of(device))](const Shape& shape) {
    // Use the caller's inference mode. The driving thread may be in an InferenceMode of its own,
    // and autograd and in-place operations outside of that mode do not accept its tensors.
    const c10::InferenceMode as_caller(inference);
    const torch::NoGradGuard no_grad;
    const c10::OptionalStreamGuard guard(stream);
    *output = torch::empty(shape, options);
    return output->data_ptr();
  };
}

void order_current_stream(const Work& work, torch::Device device) {
  const std::optional<CudaStream> stream = current_stream(device);
  if (!stream) return;
  if (Status ordered = work.order(*stream); !ordered.ok()) throw Exception(ordered.error());
}

void keep_for_current_stream(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu() || !tensor.has_storage()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

void ReadyStreams::add(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::Stream stream = stream_of(device);
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

void ReadyStreams::join() {
  for (const c10::Stream& stream : streams_) {
    const c10::Stream current = stream_of(stream.device());
    if (current == stream) continue;
    // This also waits for work given to the stream since add(), which is little or none.
    c10::Event event(stream.device_type());
    event.record(stream);
    event.block(current);
  }
  streams_.clear();
}

}  // namespace kolo
