// What the environment says about the launcher. Used to find the rendezvous method, and to check
// that as many processes were found as were started. Pure.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <optional>
#include <string>
#include <string_view>

namespace kolo {

/// A launcher, recognised by its variables.
struct LauncherHint {
  std::string launcher;  ///< "Open MPI's mpirun"
  std::string variable;  ///< reveals the launcher; holds the size if the launcher tells it
  int size = 0;          ///< number of processes; 0: not announced
  bool is_mpi = false;   ///< starts MPI programs
};

/// The first match of: Open MPI, MPICH and derivatives (PMI), a Slurm step, other launchers that
/// kolo only takes the size from, PMIx, RANK/WORLD_SIZE. Nothing if none matches. A batch script of
/// Slurm is not a step: there SLURM_NTASKS counts processes that nobody started. kInvalidArgument
/// if the number of processes is not a number.
Result<std::optional<LauncherHint>> find_launcher(const Environment& environment);

/// Whether this is a task of a step, which srun starts. A batch script is not.
bool in_slurm_step(const Environment& environment);

/// kMismatch if a launcher announces more than one process but another number was found. Also
/// kMismatch if one process was found although a variable shows that others exist. Otherwise a
/// program would train several times side by side unnoticed. `bootstrap`: Bootstrap::description().
Status check_world_size(const Environment& environment, int found, std::string_view bootstrap);

}  // namespace kolo
