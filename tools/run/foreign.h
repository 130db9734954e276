// ForeignLauncher: the command by which srun or mpirun starts the same job. Pure. Used by
// kolo-run's main thread, for --launcher and for what --dry-run prints.
#pragma once

#include "runtime/base/environment.h"
#include "tools/run/plan.h"

#include <string>
#include <vector>

namespace kolo::run {

/// `to_copy`: for somebody to type, so that --timeout and the values of variables are in it, but no
/// secret; else to be executed, with the variables of variables_for().
std::vector<std::string> mpirun_command(const Options& options, const Plan& plan,
                                        const Environment& environment, bool as_root, bool to_copy);
/// It places the ranks by the file SLURM_HOSTFILE, which has hosts_of_ranks().
std::vector<std::string> srun_command(const Options& options, const Plan& plan, bool to_copy);
/// A line for each rank.
std::string hosts_of_ranks(const Plan& plan);

/// The environment of such a launcher: this one and what -x sets.
Environment::Variables variables_for(const JobDescription& job, const Environment& environment);

/// For srun, whose own variables do not tell, where ranks are on several hosts. What the
/// environment says of it counts only where kolo-run was not told the hosts: their order may be
/// another.
void tell_where_rank_0_is(const Options& options, const Plan& plan,
                          Environment::Variables& variables);

/// As one would type it: quoted where a shell needs it.
std::string to_shell(const std::string& word);
std::string to_shell(const std::vector<std::string>& command);

}  // namespace kolo::run
