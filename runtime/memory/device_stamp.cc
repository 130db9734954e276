#include "runtime/memory/device_stamp.h"

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace kolo {
namespace {

using Stamp = std::array<std::byte, kStampBytes>;

/// A different stamp for each key, with different words.
Stamp stamp_of(std::string_view key) {
  std::uint64_t state = fnv1a(key);
  Stamp stamp;
  for (std::size_t at = 0; at < stamp.size(); at += sizeof state) {
    state = state * 6364136223846793005 + 1442695040888963407;
    std::memcpy(stamp.data() + at, &state, sizeof state);
  }
  return stamp;
}

Result<bool> is_done_by(const DeviceEvent& event, Deadline deadline) {
  while (true) {
    KOLO_ASSIGN(const bool is_done, event.is_done());
    if (is_done || deadline.expired()) return is_done;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

Status write_stamp(Accelerator& accelerator, std::span<std::byte> own, std::string_view key) {
  const Stamp stamp = stamp_of(key);
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_TRY(stream->copy(own.data(), stamp.data(), stamp.size()));
  KOLO_ASSIGN(const auto done, stream->record());
  return done->synchronize();
}

Status check_stamps(Accelerator& accelerator, std::span<std::byte> own,
                    std::span<const StampedMemory> peers, Deadline deadline) {
  if (peers.empty()) return {};
  KOLO_CHECK(own.size() >= (peers.size() + 1) * kStampBytes);
  std::byte* const seen = own.data() + kStampBytes;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (const StampedMemory& peer : peers) {
    destinations.push_back(seen + sources.size() * kStampBytes);
    sources.push_back(peer.memory.data());
  }
  const std::vector<std::uint64_t> counts(peers.size(), kStampBytes);
  KOLO_ASSIGN(auto stream, accelerator.new_stream());
  KOLO_TRY(stream->combine({.type = DataType::kUInt8}, {sources, destinations, counts}));
  KOLO_ASSIGN(const auto read, stream->record());
  KOLO_ASSIGN(const bool is_read, is_done_by(*read, deadline));
  if (!is_read) {
    [[maybe_unused]] const DeviceStream* given_up = stream.release();  // its destructor would wait
    return KOLO_ERROR(kDevice,
                      "{} does not end reading its peers' memory (PCIe access control or an IOMMU "
                      "between devices can do that; KOLO_DEVICE_MEMORY=0 maps none)",
                      to_string(accelerator.info().uuid));
  }
  std::vector<std::byte> stamps(peers.size() * kStampBytes);
  KOLO_TRY(stream->copy(stamps.data(), seen, stamps.size()));
  KOLO_ASSIGN(const auto copied, stream->record());
  KOLO_TRY(copied->synchronize());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Stamp wanted = stamp_of(peers[i].key);
    if (std::memcmp(stamps.data() + i * kStampBytes, wanted.data(), kStampBytes) == 0) continue;
    return KOLO_ERROR(
        kUnsupported,
        "{} maps memory of rank {}, but does not read there what that has written "
        "(PCIe access control or an IOMMU between the devices: nvidia-smi topo -p2p r)",
        to_string(accelerator.info().uuid), peers[i].rank);
  }
  return {};
}

}  // namespace kolo
