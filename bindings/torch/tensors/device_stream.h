// Streams of the devices that tensors lie on. An operation on device memory starts after the work
// that the current stream already has; after wait(), the current stream continues after the
// operation. kolo's calls are thus ordered as LibTorch's are. On host memory these functions do
// nothing. Private to bindings/torch. Any thread; a ReadyStreams one at a time.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// The current stream of this thread on the device.
c10::Stream stream_of(torch::Device device);
/// Handle of that stream; nothing for host memory. Throws kUnsupported if this LibTorch does not
/// expose stream handles.
std::optional<CudaStream> current_stream(torch::Device device);

/// Makes `output` once the ranks have agreed on its shape, in memory of the stream that is current
/// now, whichever thread allocates. The operation runs after all earlier work of that stream, so
/// the output may reuse freed memory that this earlier work still uses.
Allocator allocator_of(std::shared_ptr<torch::Tensor> output, const torch::TensorOptions& options);

/// Makes later work of the device's current stream wait for the operation's result. The host does
/// not wait. Precondition: `work` is done and has succeeded.
void order_current_stream(const Work& work, torch::Device device);

/// Keeps a result's memory from reuse until the current stream's work on it is done; the result may
/// have been allocated for another stream.
void keep_for_current_stream(const torch::Tensor& tensor);

/// The streams on which some tensors became ready. Gradients of one bucket may come from several.
class ReadyStreams {
 public:
  /// Adds the device's current stream with its work so far.
  void add(torch::Device device);
  /// Makes later work of each device's current stream wait for all that was added, then forgets it.
  void join();

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace kolo
