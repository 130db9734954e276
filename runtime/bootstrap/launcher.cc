#include "runtime/bootstrap/launcher.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/mpi_bootstrap.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace kolo {
namespace {

// Slurm gives the batch script and the external step the highest step ids.
constexpr std::uint64_t kFirstSpecialSlurmStep = 0xfffffff0;

struct Launcher {
  const char* name;
  const char* variable;
  bool is_mpi;
  bool tells_size = true;
  bool is_slurm = false;  ///< its variables count only in a step
};
constexpr Launcher kLaunchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", true},
    {"an MPI launcher with PMI (MPICH and kin)", "PMI_SIZE", true},
    {"a Slurm step", "SLURM_STEP_NUM_TASKS", true, true, true},
    {"a Slurm step", "SLURM_NTASKS", true, true, true},
    {"a Slurm step", "SLURM_NPROCS", true, true, true},
    {"MVAPICH's launcher", "MV2_COMM_WORLD_SIZE", true},
    {"IBM's jsrun", "JSM_NAMESPACE_SIZE", true},
    {"horovodrun", "HOROVOD_SIZE", false},
    {"an MPI launcher with PMIx", "PMIX_RANK", true, false},
    {"HPE's PALS", "PALS_RANKID", true, false},
    {"a launcher in torchrun's manner", "WORLD_SIZE", false},
};

/// A variable whose value, if above `alone`, shows that other processes exist.
struct Company {
  const char* variable;
  int alone;
};
// PALS tells how many processes a host has, not how many there are in all.
constexpr Company kCompany[] = {
    {"RANK", 0},         {"OMPI_COMM_WORLD_RANK", 0}, {"PMI_RANK", 0},
    {"PMIX_RANK", 0},    {"MV2_COMM_WORLD_RANK", 0},  {"JSM_NAMESPACE_RANK", 0},
    {"HOROVOD_RANK", 0}, {"PALS_RANKID", 0},          {"PALS_LOCAL_SIZE", 1},
};

/// What shows that other processes exist. A `lone` process was started by a launcher that knows
/// that there are no others; RANK may be left over from anything.
const Company* company_of(const Environment& environment, bool lone) {
  for (const Company& company : kCompany) {
    if (lone && company.variable == std::string_view("RANK")) continue;
    if (environment.get_int(company.variable).value_or(0) > company.alone) return &company;
  }
  return nullptr;
}

std::string_view remedy_for(bool by_mpi) {
  if (!by_mpi) return "give each process RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  return mpi_built() ? "start the program with the mpirun of the MPI that kolo was built with"
                     : "build kolo with -DKOLO_WITH_MPI=ON, or give each process MASTER_ADDR and "
                       "MASTER_PORT";
}

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

Result<std::optional<LauncherHint>> find_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.is_slurm && !in_slurm_step(environment)) continue;
    const auto text = environment.get(launcher.variable);
    if (!text) continue;
    LauncherHint hint{launcher.name, launcher.variable, 0, launcher.is_mpi};
    if (!launcher.tells_size) return std::optional(std::move(hint));
    const auto size = environment.get_int(launcher.variable);
    if (!size) {
      return KOLO_ERROR(kInvalidArgument,
                        "{}='{}' is no number of processes; set it as {} does, or unset it",
                        launcher.variable, *text, launcher.name);
    }
    hint.size = *size;
    return std::optional(std::move(hint));
  }
  return std::optional<LauncherHint>();
}

Status check_world_size(const Environment& environment, int found, std::string_view bootstrap) {
  KOLO_ASSIGN(const auto hint, find_launcher(environment));
  const bool by_mpi = hint && hint->is_mpi;
  const std::string_view remedy = remedy_for(by_mpi);
  constexpr std::string_view kAlone =
      "or set KOLO_INIT_METHOD=single:// if independent processes are meant";
  if (hint && hint->size > 1 && hint->size != found) {
    return KOLO_ERROR(
        kMismatch, "{} announces {} processes ({}={}), but the bootstrap '{}' found {}; {}, {}",
        hint->launcher, hint->size, hint->variable, hint->size, bootstrap, found, remedy, kAlone);
  }
  if (found != 1) return {};
  const Company* const company = company_of(environment, by_mpi && hint->size == 1);
  if (company == nullptr) return {};
  return KOLO_ERROR(kMismatch,
                    "{}={} speaks of other processes, but the bootstrap '{}' found this one "
                    "alone; {}, {}",
                    company->variable, environment.get_int(company->variable).value_or(0),
                    bootstrap, remedy, kAlone);
}

}  // namespace kolo
