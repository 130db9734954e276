#include "runtime/memory/device_network.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kTried = 2 << 20;

DeviceNetwork staged(const std::string& why) {
  return {false, "through pinned memory of the hosts: " + why};
}

Result<std::string> reach(Transport& transport, Accelerator& accelerator) {
  KOLO_ASSIGN(const auto memory, accelerator.allocate(kTried));
  KOLO_TRY(accelerator.take_network_writes());
  Result<std::string> how = std::string();
  accelerator.use_for([&] { how = transport.reach_device(memory->bytes()); });
  return how;
}

}  // namespace

DeviceNetworkAnswer try_device_network(Transport& transport, Accelerator& accelerator) {
  Result<std::string> how = reach(transport, accelerator);
  if (!how.ok()) return {false, std::move(how).error().message};
  return {true, *std::move(how)};
}

Result<DeviceNetwork> agree_on_device_network(std::string_view mode,
                                              const std::vector<DeviceNetworkAnswer>& answers) {
  const auto cannot = std::find_if(answers.begin(), answers.end(),
                                   [](const auto& answer) { return !answer.works; });
  if (cannot == answers.end())
    return DeviceNetwork{true, "by GPUDirect RDMA: " + answers.front().reason};
  const std::string why = fmt::format("rank {}: {}", cannot - answers.begin(), cannot->reason);
  if (mode != "on") return staged(why);
  return KOLO_ERROR(kUnsupported,
                    "KOLO_GPUDIRECT=on, but network cards do not reach all ranks' devices: {}; "
                    "KOLO_GPUDIRECT=auto goes through pinned memory then",
                    why);
}

DeviceNetwork device_network_switched_off() { return staged("KOLO_GPUDIRECT=off"); }

}  // namespace kolo
