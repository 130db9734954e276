// Plan: from options and environment to which ranks run where and where they meet. Used by
// kolo-run's main thread, before anything is started.
#pragma once

#include "runtime/base/environment.h"
#include "tools/run/options.h"

#include <kolo/error.h>

#include <chrono>
#include <string>
#include <vector>

namespace kolo::run {

struct Plan {
  std::vector<Host> hosts;            ///< of the whole job, where kolo-run knows them
  std::vector<Place> places;          ///< of the ranks that this kolo-run starts
  JobDescription job;                 ///< its `store` without a port, until that is bound
  bool serves = true;                 ///< the store is in this process
  std::string listen_host;            ///< where it listens; empty: at all addresses
  int listen_port = 0;                ///< 0: one that is free
  std::vector<std::string> warnings;  ///< a line each
  /// Ranks have met by then, or given up, and whoever serves the store later may be the next job.
  std::chrono::seconds time_to_meet = {};
};

/// A port that was free a moment ago.
int free_port();

/// Whose ranks run where, and where they meet. kInvalidArgument for what cannot be, with what to
/// give instead.
Result<Plan> make_plan(const Options& options, const Environment& environment);
/// What the ranks find on their hosts, besides; kInvalidArgument likewise, of which other nodes can
/// be told.
Status complete_plan(const Options& options, const Environment& environment, Plan& plan);

/// The IPv4 (else IPv6) address of a network interface of this host; kInvalidArgument names those
/// that there are.
Result<std::string> address_of_interface(const std::string& name);

}  // namespace kolo::run
