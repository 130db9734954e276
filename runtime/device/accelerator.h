// Accelerator: a device that computes beside the processor, in memory of its own (a CUDA GPU; in
// tests an emulation by threads). DeviceStream: work enqueued on the device, done in order, without
// blocking the caller. device/cuda implements both for CUDA; device/no_cuda.cc is a build without
// CUDA.
//
// Threads: any thread may use an accelerator. One thread at a time uses a stream: the holder of the
// progress token. Calls set the device's context on their thread themselves. No call waits for work
// on the device, except allocating, pinning, importing, synchronize() and destructors.
#pragma once

#include "runtime/device/device.h"

#include <kolo/error.h>
#include <kolo/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// A device as all processes of all hosts know it: by UUID, not by ordinal, because
/// CUDA_VISIBLE_DEVICES gives each process its own ordinals.
using DeviceUuid = std::array<std::uint8_t, 16>;
/// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as in CUDA_VISIBLE_DEVICES and nvidia-smi.
std::string to_string(const DeviceUuid& uuid);

struct AcceleratorInfo {
  int ordinal = 0;  ///< in this process
  DeviceUuid uuid = {};
  std::string name;        ///< "NVIDIA H200"
  std::string bus_id;      ///< "0000:19:00.0"
  std::string versions;    ///< "CUDA 13.0, driver 13.0"
  std::size_t memory = 0;  ///< bytes
  int processors = 0;      ///< streaming multiprocessors
  /// True under NVIDIA MPS, which runs the kernels of all processes at once. Without MPS, processes
  /// take turns on the device.
  bool is_served = false;
};

/// A point in a stream: done once everything enqueued before it is done. Any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Never blocks. kDevice: the device has failed and will finish no more work.
  virtual Result<bool> is_done() const = 0;
  /// Blocks until the event is done. kDevice.
  virtual Status synchronize() const = 0;
  /// Makes another library's stream (a cudaStream_t) wait for this event: work enqueued there from
  /// now on runs after it.
  virtual Status order(void* native_stream) const = 0;
};

/// What to do to each piece of a batch: every destination = postscale(op over prescale(sources)).
struct Combination {
  DataType type = DataType::kFloat32;
  /// Type of the sources, if it differs from `type`: float32 sources for a half type, or a half
  /// type for float32. Only for a copy, sum or product; rounded to nearest even. A prescaled source
  /// is rounded to its own type.
  std::optional<DataType> source_type = {};
  /// Not kAdasum. kAverage is a sum, whose divisor is in `postscale`. With one source: a copy.
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t sources = 1;       ///< for each piece, at most 32
  std::uint32_t destinations = 1;  ///< for each piece
  /// Bit i: source i is multiplied by `prescale`, and rounded to its type, before it is combined.
  std::uint32_t prescaled = 0;
  Scale prescale = {};
  Scale postscale = {};
};

/// Contiguous pieces of memory: of the device, imported from peers' devices, or pinned host memory.
struct PieceList {
  std::span<const std::byte* const> sources;  ///< those of piece 0, then those of piece 1, …
  std::span<std::byte* const> destinations;
  std::span<const std::uint64_t> counts;  ///< elements, by piece
};

class Accelerator;

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual Accelerator& accelerator() = 0;

  /// Enqueues all pieces in as few launches as possible. Semantics, order and rounding are those of
  /// Device::copy and Device::reduce. A destination may be one of its piece's sources; otherwise
  /// pieces do not overlap.
  virtual Status combine(const Combination& what, const PieceList& pieces) = 0;
  /// As Device::adasum.
  virtual Status adasum(DataType type, std::byte* destination, const std::byte* a,
                        const std::byte* b, std::size_t count) = 0;
  /// Copies bytes between any two memories (device, pinned or other host memory), with the copy
  /// engines.
  virtual Status copy(std::byte* destination, const std::byte* source, std::size_t bytes) = 0;

  /// Sets device memory to zero.
  virtual Status zero(std::byte* memory, std::size_t bytes) = 0;

  /// Work enqueued from now on starts after the event.
  virtual Status wait(const DeviceEvent& event) = 0;
  virtual Result<std::shared_ptr<DeviceEvent>> record() = 0;
  /// The underlying stream (a cudaStream_t).
  virtual void* native() const = 0;
};

/// Memory that is released with this object: allocated, pinned, or imported from a peer.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

/// Where an address lies, as an accelerator sees it.
enum class MemoryLocation : std::uint8_t {
  kHost,         ///< the device cannot access it
  kPinnedHost,   ///< the device accesses it at the same address
  kDevice,       ///< memory of this device
  kOtherDevice,  ///< memory of another device
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const AcceleratorInfo& info() const = 0;

  /// A stream of high priority, so that communication does not wait for computation.
  virtual Result<std::unique_ptr<DeviceStream>> new_stream() = 0;
  /// An event after everything enqueued so far on another library's stream (a cudaStream_t; null:
  /// the default stream). Any thread.
  virtual Result<std::shared_ptr<DeviceEvent>> record(void* native_stream) = 0;

  /// Device memory, zeroed, which peers can import. kOutOfMemory names the size and what is left.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) = 0;
  /// Pins host memory of whole pages, so that the device can access it at the same address.
  virtual Result<std::unique_ptr<DeviceMemory>> pin(std::span<std::byte> host) = 0;
  /// Allocates pinned host memory.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate_pinned(std::size_t bytes) = 0;

  /// The key with which other processes of this host import memory of allocate(). Opaque.
  virtual Result<std::string> export_memory(const DeviceMemory& memory) = 0;
  /// Maps memory of another process. kUnsupported says why the devices cannot access each other.
  virtual Result<std::unique_ptr<DeviceMemory>> import_memory(std::string_view key) = 0;

  virtual MemoryLocation location_of(const void* address) = 0;

  /// Blocks until all work that this process has enqueued on the device is done.
  virtual Status synchronize() = 0;

  /// Makes data that network cards have written to device memory, and have reported to the host,
  /// visible to work enqueued from now on. kUnsupported if the device cannot guarantee that.
  virtual Status take_network_writes() = 0;
  /// Calls `call` with the device current on this thread, for libraries that use the current
  /// device.
  virtual void use_for(const std::function<void()>& call) = 0;
};

/// Number of devices that this process may use; `reason` says why there are none.
struct Accelerators {
  int count = 0;
  std::string reason;  ///< "this build of kolo is without CUDA", "no CUDA driver is loaded", …
};
Accelerators find_accelerators();
/// Opens device `ordinal`. kDevice or kUnsupported says what is missing.
Result<std::unique_ptr<Accelerator>> open_accelerator(int ordinal);

}  // namespace kolo
