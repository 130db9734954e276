#include "runtime/bootstrap/identity.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/host_list.h"
#include "runtime/bootstrap/launcher.h"

#include <initializer_list>
#include <utility>

namespace kolo {
namespace {

constexpr int kDefaultPort = 29500;  // the default of torch.distributed

std::optional<Identity> from(const Environment& environment, const char* rank, const char* size) {
  const auto rank_value = environment.get_int(rank);
  const auto size_value = environment.get_int(size);
  if (!rank_value || !size_value) return std::nullopt;
  Identity identity;
  identity.rank = *rank_value;
  identity.size = *size_value;
  identity.source = fmt::format("{} and {}", rank, size);
  return identity;
}

/// The first variable that is set. List new names before old ones.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = environment.get(name)) return *value;
  }
  return {};
}

/// How many tasks the Slurm step has on a node.
std::optional<int> tasks_of_node(const Environment& environment, std::size_t node) {
  const auto counts = expand_task_counts(
      first_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  if (!counts.ok() || node >= counts->size()) return std::nullopt;
  return (*counts)[node];
}

}  // namespace

std::optional<Identity> identity_of_environment(const Environment& environment) {
  auto identity = from(environment, "RANK", "WORLD_SIZE");
  if (!identity) return std::nullopt;
  identity->local_rank = environment.get_int("LOCAL_RANK");
  identity->local_size = environment.get_int("LOCAL_WORLD_SIZE");
  return identity;
}

std::optional<Identity> identity_of_mpi_launcher(const Environment& environment) {
  if (auto open_mpi = from(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    open_mpi->local_rank = environment.get_int("OMPI_COMM_WORLD_LOCAL_RANK");
    open_mpi->local_size = environment.get_int("OMPI_COMM_WORLD_LOCAL_SIZE");
    open_mpi->job = first_of(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
    return open_mpi;
  }
  auto pmi = from(environment, "PMI_RANK", "PMI_SIZE");
  if (!pmi) return std::nullopt;
  pmi->local_rank = environment.get_int("MPI_LOCALRANKID");
  pmi->local_size = environment.get_int("MPI_LOCALNRANKS");
  pmi->job = first_of(environment, {"PMI_JOBID", "PMI_KVS"});
  return pmi;
}

std::optional<Identity> identity_of_slurm_step(const Environment& environment) {
  if (!in_slurm_step(environment)) return std::nullopt;
  std::optional<Identity> step;
  for (const char* size : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
    if (!step) step = from(environment, "SLURM_PROCID", size);
  }
  if (!step) return std::nullopt;
  step->local_rank = environment.get_int("SLURM_LOCALID");
  step->job = fmt::format("slurm {}.{}", first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}),
                          first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}));
  const auto hosts = expand_node_list(
      first_of(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  if (hosts.ok()) step->first_host = hosts->front();
  const auto node = environment.get_int("SLURM_NODEID");
  if (node) step->local_size = tasks_of_node(environment, static_cast<std::size_t>(*node));
  // With --distribution=arbitrary, rank 0 may not be on the first node, and only rank 0 sees that.
  if (step->rank == 0 && node.value_or(0) > 0) step->first_host.clear();
  return step;
}

std::string job_of_environment(const Environment& environment) {
  // Each component of a heterogeneous Slurm job has a SLURM_JOB_ID of its own.
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_HET_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID",
                           "LSB_JOBID", "FLUX_JOB_ID"}) {
    const auto value = environment.get(name);
    // torchrun calls every run without an id "none".
    if (value && *value != "none") return fmt::format("{}={}", name, *value);
  }
  return {};
}

Result<std::optional<Endpoint>> master_endpoint(const Environment& environment) {
  auto host = environment.get("MASTER_ADDR");
  if (!host) return std::optional<Endpoint>();
  // Brackets as in a URL.
  if (host->starts_with('[') && host->ends_with(']')) *host = host->substr(1, host->size() - 2);
  const auto text = environment.get("MASTER_PORT");
  const int port = environment.get_int("MASTER_PORT").value_or(text ? 0 : kDefaultPort);
  if (port < 1 || port > 65535) {
    return KOLO_ERROR(kInvalidArgument,
                      "MASTER_PORT='{}' is not valid: expected a port, 1 to 65535",
                      text.value_or(""));
  }
  return std::optional(Endpoint{*std::move(host), static_cast<std::uint16_t>(port)});
}

Result<std::optional<TorchrunAgent>> torchrun_agent(const Environment& environment,
                                                    const Endpoint& master) {
  if (environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True") {
    return std::optional<TorchrunAgent>();
  }
  if (master.port == 65535) {
    return KOLO_ERROR(kInvalidArgument,
                      "MASTER_PORT=65535 is not valid under torchrun, where kolo may need the next "
                      "port: give torchrun a lower --master-port");
  }
  // A restarted group must not read the address at which the former group met.
  return std::optional(
      TorchrunAgent{fmt::format("kolo/{}/{}", environment.get("TORCHELASTIC_RUN_ID").value_or(""),
                                environment.get("TORCHELASTIC_RESTART_COUNT").value_or("0")),
                    static_cast<std::uint16_t>(master.port + 1)});
}

}  // namespace kolo
