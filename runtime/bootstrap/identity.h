// Rank, size and local rank of a process, as launchers set them in its environment. Pure; used by
// rendezvous_method.
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
  /// Equal on all processes of the job, and different for every other job; empty: not known.
  std::string job = {};
  std::string first_host = {};  ///< rank 0's host, if the launcher tells it
};

/// RANK and WORLD_SIZE; nothing unless both are set.
std::optional<Identity> identity_of_environment(const Environment& environment);
/// From the variables of Open MPI, or of MPICH and its derivatives (PMI).
std::optional<Identity> identity_of_mpi_launcher(const Environment& environment);
/// From a Slurm step, which srun starts. A batch script is none, although SLURM_NTASKS > 1 there.
std::optional<Identity> identity_of_slurm_step(const Environment& environment);

/// torchrun's or the batch system's name for this job, such as "SLURM_JOB_ID=17". For ranks whose
/// own variables do not name the job. Empty if there is none.
std::string job_of_environment(const Environment& environment);

/// MASTER_ADDR and MASTER_PORT (default 29500). Nothing without MASTER_ADDR.
Result<std::optional<Endpoint>> master_endpoint(const Environment& environment);

/// torchrun's agent, if it serves MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE).
struct TorchrunAgent {
  std::string key;              ///< where rank 0 publishes its address; each start has its own
  std::uint16_t next_port = 0;  ///< where ranks meet if the agent does not answer
};
/// Nothing under other launchers; kInvalidArgument if there is no next port.
Result<std::optional<TorchrunAgent>> torchrun_agent(const Environment& environment,
                                                    const Endpoint& master);

}  // namespace kolo
