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

bool has_pmix(const Environment& environment) { return environment.get("PMIX_RANK").has_value(); }

/// Whether kolo may be a client of the launcher's PMI.
bool has_pmi(const Environment& environment) {
  return offers_pmi(environment) && !by_open_mpi(environment) && !by_slurm(environment);
}

std::string sign_of_launcher(const Environment& environment) {
  if (has_pmix(environment)) return "PMIX_RANK is set";
  return environment.get("PMI_FD") ? "PMI_FD is set" : "PMI_PORT is set";
}

/// The way of a program whose MPI, if any, does not fit the launcher.
std::optional<RendezvousMethod> way_without_mpi(const RendezvousRequest& request,
                                                const Environment& environment, bool is_told_rank) {
  const bool has_address = environment.get("MASTER_ADDR").has_value();
  std::string why = sign_of_launcher(environment);
  if (request.mpi_built) why += ", by the launcher of another MPI than this build's";
  if (has_pmix(environment) && request.pmix_built && !has_address) {
    return way_by(Meeting::kPmix, "pmix", std::move(why));
  }
  // With PMI_PORT, PMI itself tells rank and size.
  if (has_pmi(environment) && !(is_told_rank && has_address))
    return way_by(Meeting::kPmi, "pmi", std::move(why));
  return std::nullopt;
}

}  // namespace

std::optional<RendezvousMethod> way_by_mpi_launcher(const RendezvousRequest& request,
                                                    const Environment& environment) {
  if (request.mpi_running) return way_by(Meeting::kMpi, "mpi", "MPI is running already");
  const auto who = identity_of_mpi_launcher(environment);
  if (!fits_launcher(request, environment))
    return way_without_mpi(request, environment, who.has_value());
  if (who) return way_by(Meeting::kMpi, "mpi", who->source + " are set");
  if (!has_pmix(environment) && !has_pmi(environment)) return std::nullopt;
  return way_by(Meeting::kMpi, "mpi", sign_of_launcher(environment));
}

}  // namespace kolo
