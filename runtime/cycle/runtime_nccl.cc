// How the runtime opens NCCL at start, once the accelerators are open.
#include "runtime/cycle/runtime.h"
#include "runtime/nccl/nccl_meeting.h"

#include <utility>

namespace kolo {

Status Runtime::connect_nccl(Bootstrap& bootstrap, const OpenNccl& open) {
  NcclOffer mine;
  if (const Accelerator* const accelerator = devices_.accelerator(); accelerator == nullptr) {
    mine.complaint = "it has no CUDA device: " + devices_.no_accelerator();
  } else if (auto api = open(); !api.ok()) {
    mine.complaint = api.error().message;
  } else {
    nccl_ = {.api = *std::move(api),
             .ordinal = accelerator->info().ordinal,
             .uuid = accelerator->info().uuid};
    mine = {.api = nccl_.api.get(), .ordinal = nccl_.ordinal, .uuid = nccl_.uuid};
  }
  KOLO_ASSIGN(auto communicator,
              meet_over_nccl(bootstrap, mine,
                             Deadline::after(std::chrono::seconds(config_.init_timeout_s))));
  log_.info("all-reduces of device memory: NCCL {}", nccl_version_text(nccl_.api->version()));
  groups_.world().nccl().adopt(SubmissionMode::kNegotiated, std::move(communicator));
  return {};
}

}  // namespace kolo
