#include "tests/support/emulated_device.h"

#include "tests/support/emulated_accelerator.h"

#include <algorithm>
#include <cstring>

namespace kolo::test {

EmulatedDevice::EmulatedDevice(std::uint8_t number) { uuid_.back() = number; }

void EmulatedDevice::hold_writes_to(std::span<std::byte> memory, std::shared_future<void> until) {
  const std::lock_guard lock(mutex_);
  held_to_.emplace_back(memory, std::move(until));
}

void EmulatedDevice::hold_reads_of(std::span<const std::byte> memory,
                                   std::shared_future<void> until) {
  const std::lock_guard lock(mutex_);
  held_from_.emplace_back(memory, std::move(until));
}

void EmulatedDevice::write_from_network(std::span<std::byte> destination,
                                        std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  from_network_.emplace_back(destination, std::move(bytes));
}

// Under the lock: when a rank's call returns, writes that another rank is taking are there, too.
void EmulatedDevice::take_network_writes() {
  const std::lock_guard lock(mutex_);
  for (const auto& [destination, bytes] : std::exchange(from_network_, {}))
    std::memcpy(EmulatedAccelerator::behind(destination.data()), bytes.data(), bytes.size());
}

void EmulatedDevice::forget_network_writes(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  std::erase_if(from_network_, [&](const auto& write) {
    return write.first.data() >= memory.data() &&
           write.first.data() < memory.data() + memory.size();
  });
}

void EmulatedDevice::await(const Held& held, const std::byte* address, std::atomic<int>& count) {
  std::shared_future<void> until;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, future] : held)
      if (address >= memory.data() && address < memory.data() + memory.size()) until = future;
  }
  if (!until.valid()) return;
  ++count;
  count.notify_all();
  until.wait();
}

}  // namespace kolo::test
