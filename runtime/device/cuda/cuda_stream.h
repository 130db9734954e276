// CudaStream: a stream of a device, and the kernel launches on it. One thread at a time.
#pragma once

#include "runtime/device/cuda/batch_plan.h"
#include "runtime/device/cuda/cuda_event.h"

#include <memory>

namespace kolo::cuda {

class CudaStream final : public DeviceStream {
 public:
  static Result<std::unique_ptr<DeviceStream>> make(Accelerator& accelerator,
                                                    std::shared_ptr<EventPool> events);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Waits for all enqueued work.
  ~CudaStream() override;

  Accelerator& accelerator() override { return accelerator_; }
  Status combine(const Combination& what, const PieceList& pieces) override;
  Status adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                std::size_t count) override;
  Status copy(std::byte* destination, const std::byte* source, std::size_t bytes) override;
  Status zero(std::byte* memory, std::size_t bytes) override;
  Status wait(const DeviceEvent& event) override { return event.order(stream_); }
  Result<std::shared_ptr<DeviceEvent>> record() override { return record_event(events_, stream_); }
  void* native() const override { return stream_; }

 private:
  CudaStream(Accelerator& accelerator, std::shared_ptr<EventPool> events)
      : accelerator_(accelerator), events_(std::move(events)) {}
  const CudaContext& context() const { return events_->context(); }
  Status launch(const void* kernel, std::uint32_t blocks, void* parameters);

  Accelerator& accelerator_;
  std::shared_ptr<EventPool> events_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<DeviceMemory> dots_;  ///< Adasum's, allocated at its first call
  LargeBatch batch_;                    ///< the launch that is being filled
};

}  // namespace kolo::cuda
