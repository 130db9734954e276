// Finds what keeps a job from running, on this host and between the job's hosts, and says what to
// do about it. Main thread.
#pragma once

#include <string>
#include <vector>

namespace kolo::info {

struct Finding {
  bool good = true;
  std::string what;
  std::string remedy = {};  ///< for what is not good here, or would not be in another job
};

/// Shared memory, ports, limits and names of this host. Needs no job. A problem that matters only
/// between hosts counts as good inside a job on one host.
std::vector<Finding> examine_host();

/// Collective, after init(): cores, clocks and links of the ranks' hosts. Every rank gets all
/// findings.
std::vector<Finding> examine_job();

/// Prints each finding with its mark: ok, -- (good, but with a remedy) or !! (not good). Returns
/// the number of findings that are not good.
int print_findings(const std::string& host, const std::vector<Finding>& findings);
/// As print_findings(), as one JSON object on one line.
int print_findings_json(const std::string& host, const std::vector<Finding>& findings);

}  // namespace kolo::info
