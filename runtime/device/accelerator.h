// Accelerator: a device that computes beside the processor, in memory of its own (a CUDA GPU; in
// tests an emulation by threads). DeviceStream: what is done there, in order, without blocking.
// device/cuda has CUDA's, and device/no_cuda.cc says that there is none.
//
// Threads: an accelerator is for any thread; a stream is for one at a time, the holder of the
// progress token. Calls set the device's context on their thread themselves. None of them blocks
// for work on the device, but for allocating, pinning, importing, synchronize() and destructors.
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

/// A device as all processes of all hosts know it: by UUID, never by ordinal, for
/// CUDA_VISIBLE_DEVICES gives each process ordinals of its own.
using DeviceUuid = std::array<std::uint8_t, 16>;
/// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as CUDA_VISIBLE_DEVICES and nvidia-smi have it.
std::string to_string(const DeviceUuid& uuid);

struct AcceleratorInfo {
  int ordinal = 0;  ///< in this process
  DeviceUuid uuid = {};
  std::string name;        ///< "NVIDIA H200"
  std::string bus_id;      ///< "0000:19:00.0"
  std::string versions;    ///< "CUDA 13.0, driver 13.0"
  std::size_t memory = 0;  ///< bytes
  int processors = 0;      ///< streaming multiprocessors
  /// NVIDIA MPS runs the kernels of all processes at once, which take turns without.
  bool is_served = false;
};

/// A point in a stream: done once everything that was handed in before it is. Of any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Never blocks. kDevice: the device has failed, and nothing on it will be done any more.
  virtual Result<bool> is_done() const = 0;
  /// Blocks until it is done.
  virtual Status synchronize() const = 0;
  /// Another library's stream (cudaStream_t) does what it is given from now on after this event.
  virtual Status order(void* native_stream) const = 0;
};

/// What a batch does to each of its pieces: every destination = post(op over pre(sources)).
struct Combination {
  DataType type = DataType::kFloat32;
  /// Of the sources, if they have another: float32 becomes a half type or a half type float32; a
  /// copy, sum or product, rounded to nearest even. Their prescale rounds to their own type.
  std::optional<DataType> source_type = {};
  /// Not kAdasum; kAverage is the sum, whose divisor `postscale` has. With one source: a copy.
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t sources = 1;       ///< of each piece, at most 32
  std::uint32_t destinations = 1;  ///< of each piece
  /// Sources that are multiplied by `prescale`, and rounded to their type, before they are
  /// combined: bit i is source i.
  std::uint32_t prescaled = 0;
  Scale prescale = {};
  Scale postscale = {};
};

/// Contiguous pieces of memory: of the device, of peers' devices as imported, or of pinned hosts.
struct PieceList {
  std::span<const std::byte* const> sources;  ///< of piece 0, of piece 1, …
  std::span<std::byte* const> destinations;
  std::span<const std::uint64_t> counts;  ///< elements, by piece
};

class Accelerator;

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual Accelerator& accelerator() = 0;

  /// Hands in all pieces, in as few launches as can be. Semantics, order and rounding are those of
  /// Device::copy and Device::reduce. A destination may be one of its piece's sources; pieces
  /// overlap nowhere else.
  virtual Status combine(const Combination& what, const PieceList& pieces) = 0;
  /// As Device::adasum.
  virtual Status adasum(DataType type, std::byte* destination, const std::byte* a,
                        const std::byte* b, std::size_t count) = 0;
  /// Bytes between any two memories (device, pinned or other host memory), by the copy engines.
  virtual Status copy(std::byte* destination, const std::byte* source, std::size_t bytes) = 0;

  /// Memory of the device.
  virtual Status zero(std::byte* memory, std::size_t bytes) = 0;

  /// What is handed in from now on starts after the event.
  virtual Status wait(const DeviceEvent& event) = 0;
  virtual Result<std::shared_ptr<DeviceEvent>> record() = 0;
  /// The library's own stream (cudaStream_t).
  virtual void* native() const = 0;
};

/// Memory that ends with its owner: allocated, pinned, or imported from a peer.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

/// What an address is to an accelerator.
enum class MemoryPlace : std::uint8_t {
  kHost,         ///< the device cannot reach it
  kPinnedHost,   ///< the device reaches it at the same address
  kDevice,       ///< this device's
  kOtherDevice,  ///< another one's
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const AcceleratorInfo& info() const = 0;

  /// Of high priority, so that communication is not kept waiting by computation.
  virtual Result<std::unique_ptr<DeviceStream>> new_stream() = 0;
  /// After what another library's stream (cudaStream_t; null is the default stream) was given so
  /// far. Any thread.
  virtual Result<std::shared_ptr<DeviceEvent>> record(void* native_stream) = 0;

  /// Memory of the device, zeroed, that peers can import. kOutOfMemory names the size and what is
  /// left.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) = 0;
  /// Host memory of whole pages that the device then reaches, at the same address.
  virtual Result<std::unique_ptr<DeviceMemory>> pin(std::span<std::byte> host) = 0;
  /// Host memory that is pinned and the caller's.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate_pinned(std::size_t bytes) = 0;

  /// The key by which other processes of this host import memory of allocate(). Opaque.
  virtual Result<std::string> export_memory(const DeviceMemory& memory) = 0;
  /// kUnsupported says why the devices cannot reach each other.
  virtual Result<std::unique_ptr<DeviceMemory>> import_memory(std::string_view key) = 0;

  virtual MemoryPlace place_of(const void* address) = 0;

  /// Blocks until all that this process has handed in to the device is done.
  virtual Status synchronize() = 0;

  /// What network cards have written into memory of the device, and told the host of, is there for
  /// what is handed in from now on. kUnsupported where nothing can make sure of that.
  virtual Status take_network_writes() = 0;
  /// Calls it while the device is the thread's: for libraries that use it by themselves.
  virtual void use_for(const std::function<void()>& call) = 0;
};

/// Devices that this process may use, and why there are none if there are none.
struct Accelerators {
  int count = 0;
  std::string reason;  ///< "this build of kolo is without CUDA", "no CUDA driver is loaded", …
};
Accelerators find_accelerators();
/// Opens the device of that ordinal. kDevice or kUnsupported says what is missing.
Result<std::unique_ptr<Accelerator>> open_accelerator(int ordinal);

}  // namespace kolo
