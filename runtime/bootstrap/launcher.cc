#include "runtime/bootstrap/launcher.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/mpi_bootstrap.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace kolo {
namespace {

// Slurm numbers the batch script and the external step from the top of the range.
constexpr std::uint64_t kFirstSpecialSlurmStep = 0xfffffff0;

}  // namespace

bool in_slurm_step(const Environment& environment) {
  auto id = environment.get("SLURM_STEP_ID");
  if (!id) id = environment.get("SLURM_STEPID");
  if (!id) return false;
  std::uint64_t number = 0;
  const char* const end = id->data() + id->size();
  const auto [rest, error] = std::from_chars(id->data(), end, number);
  return error == std::errc() && rest == end && number < kFirstSpecialSlurmStep;
}

std::optional<LauncherHint> find_launcher(const Environment& environment) {
  const auto hint = [&](std::string launcher, std::string variable,
                        bool is_mpi) -> std::optional<LauncherHint> {
    const auto size = environment.get_int(variable);
    if (!size) return std::nullopt;
    return LauncherHint{std::move(launcher), std::move(variable), *size, is_mpi};
  };
  if (auto found = hint("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", true)) return found;
  if (auto found = hint("an MPI launcher with PMI (MPICH and kin)", "PMI_SIZE", true)) return found;
  if (in_slurm_step(environment)) {
    for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
      if (auto found = hint("a Slurm step", variable, true)) return found;
    }
  }
  if (environment.get("PMIX_RANK")) {
    return LauncherHint{"an MPI launcher with PMIx", "PMIX_RANK", 0, true};
  }
  return hint("a launcher in torchrun's manner", "WORLD_SIZE", false);
}

Status check_world_size(const std::optional<LauncherHint>& hint, int found,
                        std::string_view bootstrap) {
  if (!hint || hint->size <= 1 || hint->size == found) return {};
  std::string_view remedy = "give each process RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  if (hint->is_mpi && mpi_built()) {
    remedy = "start the program with the mpirun of the MPI that kolo was built with";
  } else if (hint->is_mpi) {
    remedy = "build kolo with -DKOLO_WITH_MPI=ON, or give each process MASTER_ADDR and MASTER_PORT";
  }
  return KOLO_ERROR(
      kMismatch,
      "{} announces {} processes ({}={}), but the bootstrap '{}' found {}; {}, or set "
      "KOLO_INIT_METHOD=single:// if independent processes are meant",
      hint->launcher, hint->size, hint->variable, hint->size, bootstrap, found, remedy);
}

}  // namespace kolo
