// What the environment says about the launcher: for the way in, and for the check that it found as
// many processes as were started. Pure.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <optional>
#include <string>
#include <string_view>

namespace kolo {

/// A launcher, by its variables.
struct LauncherHint {
  std::string launcher;  ///< "Open MPI's mpirun"
  std::string variable;  ///< the one that betrays it, and announces the size if it knows it
  int size = 0;          ///< number of processes; 0: it does not say
  bool is_mpi = false;   ///< starts MPI programs
};

/// The first of Open MPI, MPICH and kin (PMI), a Slurm step, others whose variables kolo does not
/// follow but can count by, PMIx, RANK/WORLD_SIZE; nothing without one. A batch script of Slurm is
/// no step: there SLURM_NTASKS speaks of processes that nobody started. kInvalidArgument for a
/// number of processes that is no number.
Result<std::optional<LauncherHint>> find_launcher(const Environment& environment);

/// Whether this is a task of a step, which srun starts; a batch script is none.
bool in_slurm_step(const Environment& environment);

/// kMismatch if a launcher announces more than one process, but another number was found, or if one
/// was found where a variable speaks of others: else a program would train several times side by
/// side without a word. `bootstrap` is the description of the way in that found them.
Status check_world_size(const Environment& environment, int found, std::string_view bootstrap);

}  // namespace kolo
