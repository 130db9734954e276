// What the environment says about the launcher, and which way in follows from it. Pure but for
// choose_bootstrap(), which initialises MPI when that is the way.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/bootstrap.h"

#include <kolo/config.h>

#include <memory>
#include <optional>
#include <string>

namespace kolo {

/// A launcher of several processes, by its variables.
struct LauncherHint {
  std::string launcher;  ///< "Open MPI's mpirun"
  std::string variable;  ///< the one that announces the size
  int size = 1;
  bool is_mpi = false;   ///< starts MPI programs
};

/// The first of Open MPI, MPICH and kin (PMI), a Slurm step, RANK/WORLD_SIZE; nothing without one.
/// A batch script of Slurm is no step: there SLURM_NTASKS speaks of processes that nobody started.
std::optional<LauncherHint> find_launcher(const Environment& environment);

/// kMismatch if a launcher announces more than one process, but another number was found: else a
/// program would train several times side by side without a word.
Status check_world_size(const std::optional<LauncherHint>& hint, int found);

/// KOLO_BOOTSTRAP, or an MPI communicator given by the user, else MPI under an MPI launcher, else a
/// world of one. Checks the size of what it finds.
Result<std::unique_ptr<Bootstrap>> choose_bootstrap(const Config& config,
                                                    const Environment& environment,
                                                    const void* mpi_communicator);

}  // namespace kolo
