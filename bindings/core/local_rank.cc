#include "bindings/core/local_rank.h"

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/identity.h"

#include <optional>
#include <utility>

namespace kolo {

int announced_local_rank(const RendezvousMethod& way, const Environment& environment) {
  if (way.local_rank) return *way.local_rank;
  const auto by_mpi = identity_of_mpi_launcher(environment);
  return by_mpi ? by_mpi->local_rank.value_or(0) : 0;
}

void check_local_rank(const RendezvousMethod& way, const World& world,
                      const std::string& log_level) {
  // A launcher announces the local rank within its own job, which a world of one is not, nor any
  // but the first world of an elastic job.
  if (way.meeting == Meeting::kElastic) return;
  if (!way.local_rank || *way.local_rank == world.local_rank() || world.size() == 1) return;
  Log log(log_level);
  log.set_rank(world.rank());
  log.warning(
      "the launcher announces local rank {}, but by what memory it shares with others rank {} has "
      "local rank {} of {}; kolo uses the latter: see whether each process runs in a container of "
      "its own, or hosts were given slots that they do not have",
      *way.local_rank, world.rank(), world.local_rank(), world.local_size());
}

Result<std::unique_ptr<Accelerator>> open_device(DeviceWish wish, const RendezvousMethod& way,
                                                 const World& world, std::string& reason) {
  const Accelerators visible = find_accelerators();
  // A world of one does not know the other processes that its launcher started beside it. In an
  // elastic job others of the host may come later.
  const bool is_elastic = way.meeting == Meeting::kElastic;
  const bool by_launcher = world.size() == 1 || (is_elastic && way.local_rank);
  wish.local_rank = by_launcher ? way.local_rank.value_or(0) : world.local_rank();
  KOLO_ASSIGN(const std::optional<int> ordinal, choose_device(wish, visible));
  reason = visible.count > 0 ? "KOLO_DEVICE is cpu" : visible.reason;
  if (!ordinal) return std::unique_ptr<Accelerator>();
  auto accelerator = open_accelerator(*ordinal);
  if (accelerator.ok() || wish.option || wish.knob != "auto") return accelerator;
  // The program may not need the device.
  Error error = std::move(accelerator).error();
  error.message += "; KOLO_DEVICE=cpu on every rank starts without CUDA devices";
  return error;
}

}  // namespace kolo
