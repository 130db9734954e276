// ForeignLauncher: the command by which srun or mpirun starts the same job. Pure. Used by
// kolo-run's main thread, for --launcher and for what --dry-run prints.
#pragma once

#include "runtime/base/environment.h"
#include "tools/run/plan.h"

#include <string>
#include <vector>

namespace kolo::run {

/// `to_copy`: the command is for somebody to type. It then contains --timeout and the values of
/// variables, but no secret. Otherwise it is executed with the variables of variables_for().
std::vector<std::string> mpirun_command(const Options& options, const Plan& plan,
                                        const Environment& environment, bool as_root, bool to_copy);
/// srun places the ranks by the file SLURM_HOSTFILE, which holds hosts_of_ranks().
std::vector<std::string> srun_command(const Options& options, const Plan& plan, bool to_copy);
/// One line per rank.
std::string hosts_of_ranks(const Plan& plan);

/// The environment for this launcher: kolo-run's own, and what -x sets.
Environment::Variables variables_for(const JobDescription& job, const Environment& environment);

/// Sets MASTER_ADDR and MASTER_PORT for srun if the ranks are on several hosts, because srun's own
/// variables do not tell them. MASTER_ADDR of the environment counts only if kolo-run was not given
/// the hosts: a list of hosts may have another order.
void tell_where_rank_0_is(const Options& options, const Plan& plan,
                          Environment::Variables& variables);

/// As one would type it: quoted if a shell needs quotes.
std::string to_shell(const std::string& word);
std::string to_shell(const std::vector<std::string>& command);

}  // namespace kolo::run
