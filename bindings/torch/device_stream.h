// Streams of the devices that tensors lie on. An operation on device memory starts after what the
// current stream was given before the call, and wait() lets the current stream go on after it: so
// kolo's calls stand among a program's own as LibTorch's do. Host memory has no streams, and all of
// this is nothing there. Private to bindings/torch. Any thread; a ReadyStreams one at a time.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// The stream that this thread gives work on the device to.
c10::Stream stream_of(torch::Device device);
/// Its handle; nothing for the host's memory. Throws
/// kUnsupported if this LibTorch does not tell its streams' handles.
std::optional<CudaStream> current_stream(torch::Device device);

/// Makes `output` when the ranks have agreed on its shape. Memory of the device stream that is
/// current now, whichever thread allocates it: the operation comes after all that this stream was
/// given until then, what may still use memory that is free again included.
Allocator allocator_of(std::shared_ptr<torch::Tensor> output, const torch::TensorOptions& options);

/// What the device's current stream is given from now on comes after the operation's result. The
/// host does not wait. Precondition: `work` is done and has succeeded.
void order_current_stream(const Work& work, torch::Device device);

/// A result that was allocated for one stream, and is handed out on the current one: it is kept
/// from other tensors until this one has done what it is given.
void keep_for_current_stream(const torch::Tensor& tensor);

/// The streams on which some tensors became ready: gradients of one bucket may come from several.
class ReadyStreams {
 public:
  /// What the device's current stream was given so far.
  void add(torch::Device device);
  /// Each device's current stream does what it is given from now on after all that was added, which
  /// is forgotten.
  void join();

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace kolo
