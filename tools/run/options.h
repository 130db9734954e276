// Options: kolo-run's command line and configuration file. Used by kolo-run's main thread, before
// anything is started.
#pragma once

#include "tools/run/elastic.h"
#include "tools/run/job.h"
#include "tools/run/placement.h"

#include <string>
#include <variant>
#include <vector>

namespace kolo::run {

struct Options {
  int ranks = 0;  ///< 0: all slots
  std::string hosts;
  std::string hostfile;
  Mapping mapping = Mapping::kSlot;
  std::string launcher = "auto";  ///< auto, local, ssh, srun, mpirun
  std::string bind = "auto";      ///< auto, core, none
  std::string address;
  std::string interface;
  std::string agent;
  std::string secret_file;
  std::string gpu_ids;  ///< devices of every host, as CUDA_VISIBLE_DEVICES takes them
  int timeout = 0;      ///< seconds; 0: none
  bool dry_run = false;
  bool checks_build = false;
  JobOptions job;
  ElasticOptions elastic;        ///< limits.least 0: the job is not elastic
  std::vector<std::string> set;  ///< NAME=value, or NAME to forward
  std::vector<std::string> program;

  // torchrun's style: one kolo-run on each node.
  std::string ranks_per_node;  ///< a number, cpu, gpu or auto; empty: not torchrun's style
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;  ///< 0: a free port for a single node, else 29500

  std::vector<std::string> warnings;  ///< about the configuration file

  /// Whether another launcher starts the ranks.
  bool is_foreign() const { return launcher == "srun" || launcher == "mpirun"; }
};

/// The options; or the exit status if there is nothing to run: 0 after --help or --write-config, 2
/// after a mistake, which has been printed.
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace kolo::run
