// DeviceStamp: how ranks of a host see that what they have mapped of each other's devices is that.
// Where CUDA lets devices map each other, reads may still go astray (PCIe access control services,
// an IOMMU), and sums would be of anything. At start; the thread that calls init.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/device/accelerator.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace kolo {

/// At the head of each window.
inline constexpr std::size_t kStampBytes = 64;

/// Memory of another rank's device as it is mapped here, and the key that it was imported by.
struct StampedMemory {
  int rank = 0;
  std::span<const std::byte> memory;
  std::string_view key;
};

/// Marks `own` memory of the device, exported by `key`.
Status write_stamp(Accelerator& accelerator, std::span<std::byte> own, std::string_view key);

/// Reads the peers' stamps as sums read peers' memory: by a kernel, into `own` memory behind its
/// stamp. kUnsupported names the first rank whose stamp is another one, and says what to look at;
/// kDevice if the device has not read them by the deadline. What was to be read stays mapped then.
Status check_stamps(Accelerator& accelerator, std::span<std::byte> own,
                    std::span<const StampedMemory> peers, Deadline deadline);

}  // namespace kolo
