// Verdict: what the flight recorders of the ranks on this host tell of the end of a job.
// kolo-timeline reads their files. Used by kolo-run's main thread once a job has failed.
#pragma once

#include "tools/run/command.h"

#include <ctime>
#include <string>
#include <vector>

namespace kolo::run {

/// Says in a paragraph why the job ended, and where the files are; nothing if there are none.
/// `since`: when the job began. `ended`: "1:signal 9 (Killed)", the rank that ended first; or
/// empty. Takes seconds at most.
void tell_verdict(const JobDescription& job, const std::vector<Place>& places,
                  const Environment& environment, std::time_t since, const std::string& ended);

/// For an elastic job that has ended well: the worlds that were lost have left files.
void remove_recordings(const JobDescription& job, const std::vector<Place>& places,
                       const Environment& environment, std::time_t since);

}  // namespace kolo::run
