#include "runtime/bootstrap/mpi_launcher.h"

#include "runtime/bootstrap/identity.h"
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/pmi_client.h"

#include <fmt/format.h>

#include <utility>

namespace kolo {
namespace {

/// Open MPI's launcher serves no PMI, even inside the environment of one that does.
bool by_open_mpi(const Environment& environment) {
  return environment.get("OMPI_COMM_WORLD_SIZE").has_value();
}

/// Slurm's own PMI serves one client per process, so kolo leaves it to an MPI of the program.
/// Slurm's variables tell a task's rank anyway. Hydra inside a step sets no PMI_JOBID.
bool by_slurm(const Environment& environment) {
  return in_slurm_step(environment) && environment.get("PMI_JOBID");
}

/// Whether this build's MPI, if any, finds its peers through what this launcher offers.
bool fits_launcher(const RendezvousRequest& request, const Environment& environment) {
  if (!request.mpi_built) return false;
  if (by_open_mpi(environment)) {
    // Version 5 and later tell their version, and mislead a library of another version.
    const auto version = environment.get("OMPI_VERSION");
    return request.open_mpi_version > 0 &&
           (!version || version->starts_with(fmt::format("{}.", request.open_mpi_version)));
  }
  return request.open_mpi_version == 0 || environment.get("PMIX_RANK") || !offers_pmi(environment);
}

}  // namespace

std::optional<RendezvousMethod> way_by_mpi_launcher(const RendezvousRequest& request,
                                                    const Environment& environment) {
  if (request.mpi_running) return way_by(Meeting::kMpi, "mpi", "MPI is running already");
  const auto who = identity_of_mpi_launcher(environment);
  const bool has_address = environment.get("MASTER_ADDR").has_value();
  const bool has_pmix = environment.get("PMIX_RANK").has_value();
  const bool has_pmi =
      offers_pmi(environment) && !by_open_mpi(environment) && !by_slurm(environment);
  std::string why = environment.get("PMI_FD") ? "PMI_FD is set" : "PMI_PORT is set";
  if (has_pmix) why = "PMIX_RANK is set";
  if (fits_launcher(request, environment)) {
    if (who) why = who->source + " are set";
    if (who || has_pmix || has_pmi) return way_by(Meeting::kMpi, "mpi", std::move(why));
    return std::nullopt;
  }
  if (request.mpi_built) why += ", by the launcher of another MPI than this build's";
  if (has_pmix && request.pmix_built && !has_address) {
    return way_by(Meeting::kPmix, "pmix", std::move(why));
  }
  // With PMI_PORT, PMI itself tells rank and size.
  if (has_pmi && !(who && has_address)) return way_by(Meeting::kPmi, "pmi", std::move(why));
  return std::nullopt;
}

}  // namespace kolo
