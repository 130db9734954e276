// Plan: derives from options and environment which ranks run where and where they meet. Used by
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
  std::vector<Host> hosts;            ///< hosts of the whole job, if kolo-run knows them
  std::vector<Place> places;          ///< places of the ranks that this kolo-run starts
  JobDescription job;                 ///< `store` has no port until the port is bound
  bool serves = true;                 ///< the store is in this process
  int nodes = 1;                      ///< with one kolo-run on each: their number
  int node = 0;                       ///< likewise: which one this is
  ElasticOptions elastic;             ///< elastic jobs: with all limits
  std::string listen_host;            ///< address of the store; empty: all addresses
  int listen_port = 0;                ///< 0: a free port
  std::vector<std::string> warnings;  ///< one line each
  /// After this time the ranks have met or given up, and another job may serve the store's address.
  std::chrono::seconds time_to_meet = {};
};

/// Refuses a mistyped number of ranks of this host: so many would stop the whole system.
Status check_number(int here);

/// A port that was free a moment ago.
int free_port();

/// Decides which ranks run where and where they meet. kInvalidArgument for an impossible job, with
/// what to give instead.
Result<Plan> make_plan(const Options& options, const Environment& environment);
/// Adds what depends on the ranks' hosts: devices, threads and cores. kInvalidArgument as
/// make_plan(); other nodes can already be told of this failure.
Status complete_plan(const Options& options, const Environment& environment, Plan& plan);

/// The IPv4 (else IPv6) address of a network interface of this host. kInvalidArgument names the
/// interfaces that exist.
Result<std::string> address_of_interface(const std::string& name);

}  // namespace kolo::run
