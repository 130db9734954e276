// See <kolo/device_report.h>. Any thread.
#include "bindings/core/global.h"
#include "runtime/cycle/runtime.h"
#include "runtime/device/accelerator.h"
#include "transport/ucx/ucx_gpudirect.h"

#include <kolo/device_report.h>

namespace kolo {
namespace {

constexpr std::size_t kTried = 2 << 20;

}  // namespace

DeviceReport device_report() {
  const auto runtime = runtime_for("device_report");
  DeviceReport report;
  Accelerator* const accelerator = runtime->accelerator();
  if (accelerator == nullptr) {
    const Accelerators found = find_accelerators();
    report.reason = found.count > 0 ? "none was chosen (KOLO_DEVICE)" : found.reason;
    return report;
  }
  const AcceleratorInfo& info = accelerator->info();
  report.ordinal = info.ordinal;
  report.name = info.name;
  report.uuid = to_string(info.uuid);
  report.versions = info.versions;
  const auto memory = accelerator->allocate(kTried);
  if (!memory.ok()) {
    report.cuda_ipc_reason = report.gpu_direct_reason = memory.error().message;
    return report;
  }
  const auto key = accelerator->export_memory(**memory);
  report.cuda_ipc = key.ok();
  report.cuda_ipc_reason = key.ok() ? "its memory can be exported" : key.error().message;
  GpuDirect direct;
  accelerator->use_for([&] { direct = probe_gpudirect((*memory)->bytes()); });
  report.gpu_direct = direct.works;
  report.gpu_direct_reason = std::move(direct.reason);
  return report;
}

}  // namespace kolo
