// DeviceStamp: how the ranks of a host verify that device memory mapped from a peer really is that
// peer's memory. CUDA may let devices map each other although their reads return other data (PCIe
// access control services, an IOMMU); sums would then be wrong. Used at start, on the thread that
// calls init.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/device/accelerator.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace kolo {

/// Bytes of a stamp, at the head of each window.
inline constexpr std::size_t kStampBytes = 64;

/// Device memory of another rank as mapped here, and the key with which it was imported.
struct StampedMemory {
  int rank = 0;
  std::span<const std::byte> memory;
  std::string_view key;
};

/// Writes the stamp of `key` into `own` device memory, which was exported with `key`. Blocks.
/// kDevice.
Status write_stamp(Accelerator& accelerator, std::span<std::byte> own, std::string_view key);

/// Checks the peers' stamps. A kernel reads them, as sums read peers' memory, and writes them into
/// `own` device memory behind its stamp. kUnsupported names the first rank with a wrong stamp and
/// says what to look at. kDevice if the device has not read them by the deadline; the peers' memory
/// must then stay mapped.
Status check_stamps(Accelerator& accelerator, std::span<std::byte> own,
                    std::span<const StampedMemory> peers, Deadline deadline);

}  // namespace kolo
