// What stands in the way of a job, on this host and between those of the job, and what to do about
// it. The main thread.
#pragma once

#include <string>
#include <vector>

namespace kolo::info {

struct Finding {
  bool good = true;
  std::string what;
  std::string remedy = {};  ///< of what is not good, or would not be in another job
};

/// Shared memory, ports, limits and names of this host; needs no job, but what stands in the way of
/// a job on several hosts alone is none in a job on one.
std::vector<Finding> examine_host();

/// Collective, after init(): cores, clocks and links of the ranks' hosts. Every rank gets them all.
std::vector<Finding> examine_job();

/// Each with its mark, ok, -- (good, but with a remedy) or !!, and the number of those that are not
/// good.
int print_findings(const std::string& host, const std::vector<Finding>& findings);
/// The same as one object in one line.
int print_findings_json(const std::string& host, const std::vector<Finding>& findings);

}  // namespace kolo::info
