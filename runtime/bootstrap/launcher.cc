#include "runtime/bootstrap/launcher.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/mpi_bootstrap.h"
#include "runtime/bootstrap/single_bootstrap.h"

#include <kolo/kolo.h>

namespace kolo {
namespace {

// Slurm numbers the batch script and the external step from the top of the range.
constexpr std::int64_t kFirstSpecialSlurmStep = 0xfffffff0;

bool in_slurm_step(const Environment& environment) {
  const auto id = environment.get("SLURM_STEP_ID");
  if (!id || id->find_first_not_of("0123456789") != std::string::npos) return false;
  return id->size() < 10 || (id->size() == 10 && std::stoll(*id) < kFirstSpecialSlurmStep);
}

}  // namespace

std::optional<LauncherHint> find_launcher(const Environment& environment) {
  const auto hint = [&](std::string launcher, std::string variable,
                        bool is_mpi) -> std::optional<LauncherHint> {
    const auto size = environment.get_int(variable);
    if (!size) return std::nullopt;
    return LauncherHint{std::move(launcher), std::move(variable), *size, is_mpi};
  };
  if (auto found = hint("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", true)) return found;
  if (auto found = hint("an MPI launcher with PMI", "PMI_SIZE", true)) return found;
  if (in_slurm_step(environment)) {
    for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
      if (auto found = hint("a Slurm step", variable, true)) return found;
    }
  }
  return hint("a launcher in torchrun's manner", "WORLD_SIZE", false);
}

Status check_world_size(const std::optional<LauncherHint>& hint, int found) {
  if (!hint || hint->size <= 1 || hint->size == found) return {};
  std::string remedy = "start it with mpirun";
  if (hint->is_mpi) {
    remedy = mpi_built() ? "use the mpirun of the MPI that kolo was built with"
                         : "build kolo with -DKOLO_WITH_MPI=ON";
  }
  return KOLO_ERROR(kMismatch,
                    "{} announces {} processes ({}={}), but the bootstrap found {}; {}, or set "
                    "KOLO_BOOTSTRAP=single if independent processes are meant",
                    hint->launcher, hint->size, hint->variable, hint->size, found, remedy);
}

Result<std::unique_ptr<Bootstrap>> choose_bootstrap(const Config& config,
                                                    const Environment& environment,
                                                    const void* mpi_communicator) {
  if (config.bootstrap == "single") {
    return std::unique_ptr<Bootstrap>(std::make_unique<SingleBootstrap>());
  }
  const auto hint = find_launcher(environment);
  const bool wants_mpi =
      config.bootstrap == "mpi" || mpi_communicator != nullptr || (hint && hint->is_mpi && mpi_built());
  if (!wants_mpi) {
    KOLO_TRY(check_world_size(hint, 1));
    return std::unique_ptr<Bootstrap>(std::make_unique<SingleBootstrap>());
  }
  KOLO_ASSIGN(auto bootstrap, make_mpi_bootstrap(mpi_communicator));
  // A communicator of the user's own may be a part of the world.
  if (mpi_communicator == nullptr) KOLO_TRY(check_world_size(hint, bootstrap->size()));
  return bootstrap;
}

}  // namespace kolo
