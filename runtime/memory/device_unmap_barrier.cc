#include "runtime/memory/device_unmap_barrier.h"

#include "runtime/base/deadline.h"

#include <algorithm>
#include <thread>

namespace kolo {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{100};

}  // namespace

void DeviceUnmapBarrier::open(const HostWindow& window, const World& world, const Log& log) {
  if (window.windows().empty()) return;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    if (window.windows()[static_cast<std::size_t>(rank)].empty()) return;
    ControlSegment* const segment = &control_segment_in(window.control_segment(rank, 0));
    if (rank == world.rank()) {
      own_ = segment;
    } else {
      peers_.push_back({rank, segment});
    }
  }
  processes_.emplace(world, log);
}

bool DeviceUnmapBarrier::part(std::chrono::milliseconds longest) {
  if (own_ == nullptr) return true;
  own_->maps_no_devices.store(true, std::memory_order_release);
  const Deadline deadline = Deadline::after(longest);
  for (;;) {
    const std::vector<int> ended = processes_->exited();
    std::erase_if(peers_, [&](const Peer& peer) {
      return peer.segment->maps_no_devices.load(std::memory_order_acquire) ||
             std::find(ended.begin(), ended.end(), peer.rank) != ended.end();
    });
    if (peers_.empty()) return true;
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace kolo
