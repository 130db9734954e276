// Worlds whose ranks have emulated accelerators and KOLO_OPERATIONS=nccl over a fake of NCCL.
// Header-only.
#pragma once

#include "tests/support/device_world.h"
#include "tests/support/fake_nccl.h"

#include <memory>
#include <utility>
#include <vector>

namespace kolo::test {

inline std::shared_ptr<FakeNccl> fake_on_emulated_devices() {
  return std::make_shared<FakeNccl>(
      22809, FakeNccl::Devices{&EmulatedAccelerator::give, &EmulatedAccelerator::behind});
}

inline LocalWorldOptions over_nccl(int size, std::shared_ptr<FakeNccl> nccl) {
  LocalWorldOptions options = with_devices(size, Devices::kStaged);
  options.variables["KOLO_OPERATIONS"] = "nccl";
  options.nccl = std::move(nccl);
  return options;
}

inline std::vector<FakeNccl::Call> allreduces(const FakeNccl& nccl, int rank) {
  std::vector<FakeNccl::Call> calls = nccl.calls(rank);
  std::erase_if(calls, [](const FakeNccl::Call& call) { return call.name != "allreduce"; });
  return calls;
}

}  // namespace kolo::test
