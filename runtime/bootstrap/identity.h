// Who a process is by its environment: rank, size and local rank, as launchers say it. Pure; used
// by way_in.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/socket.h"

#include <cstdint>
#include <optional>
#include <string>

namespace kolo {

struct Identity {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank = std::nullopt;
  std::optional<int> local_size = std::nullopt;
  std::string source = {};  ///< "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"
  /// Equal on all processes of the job, another one on every other job; empty: not known.
  std::string job = {};
  std::string first_host = {};  ///< rank 0's, where the launcher tells it
};

/// RANK and WORLD_SIZE; nothing unless both are set.
std::optional<Identity> identity_of_environment(const Environment& environment);
/// Open MPI's, or MPICH's and its kin's (PMI).
std::optional<Identity> identity_of_mpi_launcher(const Environment& environment);
/// A step of Slurm: what srun started. A batch script is none, although SLURM_NTASKS > 1 there.
std::optional<Identity> identity_of_slurm_step(const Environment& environment);

/// What torchrun or a batch system calls the job that this process belongs to, as
/// "SLURM_JOB_ID=17": for ranks whose own variables do not name their job. Empty: nothing does.
std::string job_of_environment(const Environment& environment);

/// MASTER_ADDR and MASTER_PORT (default 29500). Nothing without MASTER_ADDR.
Result<std::optional<Endpoint>> master_endpoint(const Environment& environment);

/// torchrun's agent, where it has MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE).
struct TorchrunAgent {
  std::string key;              ///< where rank 0 publishes its address; no other start's
  std::uint16_t next_port = 0;  ///< where ranks meet if the agent cannot be asked
};
/// Nothing under other launchers; kInvalidArgument if there is no next port.
Result<std::optional<TorchrunAgent>> torchrun_agent(const Environment& environment,
                                                    const Endpoint& master);

}  // namespace kolo
