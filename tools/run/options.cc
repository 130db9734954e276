#include "tools/run/options.h"

#include "tools/run/config_file.h"
#include "tools/run/say.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>

namespace kolo::run {
namespace {

constexpr const char* kExamples = R"(examples:
  kolo-run -np 4 ./trainer --epochs 3           # four ranks on this host
  kolo-run -np 4 --tag-output ./trainer         # each line behind its rank, as [2]
  kolo-run -np 4 --output-dir logs ./trainer    # logs/rank.2.out, logs/rank.2.err
  kolo-run -H node1:8,node2:8 ./trainer         # 16 ranks on two hosts, by ssh
  kolo-run -np 8 --hostfile hosts -x NCCL_DEBUG=INFO -x HOME ./trainer
  kolo-run -np 16 --launcher srun ./trainer     # in an allocation of Slurm, by one srun
  kolo-run -np 4 --min-np 2 --max-np 8 --restarts 3 ./trainer  # elastic: goes on when ranks are lost
  kolo-run --host-discovery ./hosts.sh --min-np 2 ./trainer    # elastic: hosts come and go
  kolo-run -np 16 --launcher srun --min-np 12 ./trainer        # elastic by srun: goes on with fewer
  kolo-run -np 2 --bind core --timeout 3600 ./trainer
  kolo-run -np 2 --dry-run ./trainer            # what would run, and the same by mpirun
  kolo-run --nproc-per-node 8 --nnodes 2 --node-rank 0 --master-addr node1 --min-np 8 --restarts 3 ./trainer
                                                # elastic, on node1; likewise on the other
  kolo-run --config job.yaml ./trainer          # options and KOLO_ knobs from a file
  kolo-run --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr node1 ./trainer  # on node1, and
                                                # with --node_rank 1 on the other

Without -H and --hostfile, the hosts are those of the Slurm or PBS allocation, else this one. Each rank
finds KOLO_RANK, KOLO_SIZE, KOLO_LOCAL_RANK, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR and MASTER_PORT in its environment. When a rank fails, all others are ended. Exit status:
0; that of the rank that was first to end with an error (128 + N for signal N); 128 + N after signal N
to kolo-run; 124 after --timeout and --elastic-timeout; 2 if the job could not be started (wrong
options, no such program); 1 if output was lost. Ctrl-C and SIGTERM are passed on, a second one more
than a second later kills; SIGUSR1 and SIGUSR2 reach all ranks, too. Ctrl-Z stops all ranks, on other
hosts, too, until SIGCONT (fg, bg); --timeout does not count that. The ranks of this host die with
kolo-run. What ranks leave running ends with the job, daemons too: within 5 s after ranks that ended
with 0, then by SIGTERM and SIGKILL. Standard input is not passed on: the ranks' is /dev/null. With
--launcher srun or mpirun, exit status (but 2 and 124), signals and ends are as that launcher has
them.)";

constexpr std::string_view kSecret = "KOLO_SECRET=";

/// Values as given, before they become options.
struct Raw {
  Options options;
  std::string map_by = "slot";
  std::string config;
  std::string write_config;
  bool standalone = false;
};

void describe_job(CLI::App& app, Raw& raw) {
  Options& options = raw.options;
  app.add_option("-n,--np", options.ranks,
                 "number of ranks (also -np); default: all slots of -H, --hostfile or Slurm")
      ->check(CLI::Range(1, kMostRanks));
  auto* const hosts = app.add_option("-H,--host,--hosts", options.hosts,
                                     "hosts and slots: h1:2,h2:2; IPv6: [fd00::2]:2");
  app.add_option("--hostfile,--machinefile", options.hostfile,
                 "file of hosts, one a line: h1 slots=2")
      ->excludes(hosts);
  app.add_option("--map-by", raw.map_by, "slot: fill a host, then the next; node: in turn")
      ->check(CLI::IsMember({"slot", "node"}))
      ->capture_default_str();
  app.add_option("--launcher", options.launcher,
                 "local, ssh: kolo-run starts the ranks; srun, mpirun (Open MPI's): these do; "
                 "auto: local or ssh")
      ->check(CLI::IsMember({"auto", "local", "ssh", "srun", "mpirun"}))
      ->capture_default_str();
  app.add_option("-x,--env", options.set, "NAME=value or NAME to forward; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("-t,--tag-output", options.job.tags_output, "each line behind its rank");
  app.add_option("--output-dir", options.job.output_directory,
                 "a folder, made if it is not there, with a file of output for each rank");
  app.add_option("--timeout", options.timeout, "seconds until the job is ended")
      ->check(CLI::Range(1, 365 * 24 * 3600));
  app.add_option_function<int>(
         "--grace",
         [&options](const int& given) { options.job.grace = std::chrono::seconds(given); },
         "seconds between asking ranks to end and killing them; default: 30 after a signal to "
         "kolo-run and where a host disappears, 5 after a rank's failure and --timeout")
      ->check(CLI::Range(0, 24 * 3600));
  app.add_option_function<int>(
         "--time-to-die",
         [&options](const int& given) { options.job.time_to_die = std::chrono::seconds(given); },
         "seconds after SIGKILL until a rank that does not end is left")
      ->check(CLI::Range(0, 24 * 3600))
      ->group("");  // for tests alone
  app.add_option("--bind,--bind-to", options.bind,
                 "core: ranks of a host share out its cores; auto: so if there are enough")
      ->check(CLI::IsMember({"auto", "none", "core"}))
      ->capture_default_str();
  app.add_option("--gpu-ids,--gpu_ids", options.gpu_ids,
                 "devices of each host that its ranks see, as 0,1,3 (CUDA_VISIBLE_DEVICES)");
  app.add_option("--address", options.address,
                 "name or address under which other hosts reach this one; default: its name");
  app.add_option("--interface", options.interface,
                 "network for the ranks and for where they meet, as eth0 (KOLO_INTERFACE)");
  app.add_option("--agent", options.agent,
                 "what starts a command on another host, before its name; default: ssh");
  app.add_option(
      "--secret-file", options.secret_file,
      "file of mode 600 with the job's secret; default: KOLO_SECRET, KOLO_SECRET_FILE, or "
      "one that is made for the job");
}

void describe_elastic(CLI::App& app, Raw& raw) {
  constexpr const char* kGroup = "Elastic jobs, whose ranks come and go";
  ElasticOptions& options = raw.options.elastic;
  app.add_option("--min-np", options.limits.least,
                 "when a rank is lost, those of a program that calls kolo::elastic::run() go on if "
                 "they are at least so many")
      ->check(CLI::Range(1, kMostRanks))
      ->group(kGroup);
  app.add_option("--max-np", options.limits.most,
                 "ranks that the job may have: it begins with -np, and new ones join as there are "
                 "slots; default: -np; with --host-discovery all slots")
      ->check(CLI::Range(1, kMostRanks))
      ->group(kGroup);
  app.add_option("--host-discovery,--host-discovery-script", options.discovery,
                 "program that prints the hosts of now, as a --hostfile; run about once a second")
      ->group(kGroup);
  app.add_option("--restarts", options.limits.restarts,
                 "how many lost ranks of the job are replaced by new processes, which join while "
                 "the others train; default: 0")
      ->check(CLI::Range(0, 1000 * 1000))
      ->group(kGroup);
  app.add_option_function<int>(
         "--elastic-timeout",
         [&options](const int& given) { options.limits.wait = std::chrono::seconds(given); },
         "seconds that fewer than --min-np ranks wait for more, until the job ends; default: "
         "KOLO_INIT_TIMEOUT, 300")
      ->check(CLI::Range(1, 365 * 24 * 3600))
      ->group(kGroup);
  app.add_option_function<int>(
         "--patience",
         [&options](const int& given) { options.patience = std::chrono::seconds(given); },
         "seconds that the others wait for a rank that lives and does not come to the next world, "
         "until it is killed (with srun and mpirun: left behind); default: 60")
      ->check(CLI::Range(1, 24 * 3600))
      ->group(kGroup);
}

void describe_node(CLI::App& app, Raw& raw) {
  constexpr const char* kGroup = "In torchrun's manner, one kolo-run on each node";
  Options& options = raw.options;
  app.add_option("--nproc-per-node,--nproc_per_node", options.ranks_per_node,
                 "ranks of this node: a number, gpu, cpu (one a core) or auto")
      ->group(kGroup);
  app.add_option("--nnodes", options.nodes, "number of nodes")
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--node-rank,--node_rank", options.node_rank, "which of them this is")
      ->check(CLI::Range(0, 1 << 20))
      ->group(kGroup);
  app.add_option("--master-addr,--master_addr", options.master_addr, "name or address of node 0")
      ->group(kGroup);
  app.add_option("--master-port,--master_port", options.master_port,
                 "where kolo-run listens, node 0's; default: a free one; with several nodes "
                 "MASTER_PORT, else 29500")
      ->check(CLI::Range(1, 65534))
      ->group(kGroup);
  app.add_flag("--standalone", raw.standalone, "a single node; without effect besides")
      ->group(kGroup);
  static bool ignored = false;
  app.add_flag("--use-env,--use_env", ignored,
               "without effect: the ranks' variables are always set")
      ->group(kGroup);
}

/// CLI11 does not know the program and its arguments, which follow the options.
class WithProgram final : public CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: kolo-run [OPTIONS] program [arguments...]\n";
  }
};

void describe(CLI::App& app, Raw& raw) {
  app.footer(kExamples);
  app.formatter(std::make_shared<WithProgram>());
  app.prefix_command();
  app.set_version_flag("--version", "kolo " KOLO_VERSION);
  describe_job(app, raw);
  describe_elastic(app, raw);
  describe_node(app, raw);
  app.add_option("--config", raw.config,
                 "YAML file of options by their long names, KOLO_ knobs, or Accelerate's settings");
  app.add_option("--write-config", raw.write_config, "writes the options to a YAML file and ends");
  app.add_flag("--dry-run", raw.options.dry_run, "print what would run, and for whom");
  app.add_flag("--check-build", raw.options.checks_build, "what kolo-info says about this build");
}

/// Accepts -np, -host and similar options as mpirun has them, although POSIX has no such form.
std::vector<std::string> with_long_options(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    const std::string& word = arguments[i];
    const bool may_be_long = word.size() > 2 && word[1] != '-';
    const std::string name = "-" + word.substr(0, word.find('='));
    if (may_be_long && app.get_option_no_throw(name) != nullptr) arguments[i] = "-" + word;
    const CLI::Option* const option = app.get_option_no_throw(arguments[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  std::reverse(arguments.begin(), arguments.end());  // in CLI11's order
  return arguments;
}

/// A value of the file counts only if the command line does not have the option.
void apply_file(CLI::App& app, Raw& raw) {
  const auto file = read_config_file(raw.config);
  if (!file.ok()) throw CLI::ValidationError(file.error().message);
  raw.options.warnings.insert(raw.options.warnings.end(), file->warnings.begin(),
                              file->warnings.end());
  const std::set<std::string> of_hosts = {"host", "hostfile", "host-discovery"};
  const bool has_hosts =
      app.count("--host") + app.count("--hostfile") + app.count("--host-discovery") > 0;
  // Options that choose hosts and ranks in another way than the file does.
  const std::set<std::string> of_nodes = {"nproc-per-node", "nnodes", "node-rank", "master-addr",
                                          "master-port"};
  const bool has_ranks = has_hosts || app.count("--np") > 0;
  const bool has_nodes = app.count("--nproc-per-node") + app.count("--nnodes") +
                             app.count("--node-rank") + app.count("--standalone") >
                         0;
  const std::set<std::string> of_jobs = {"np", "host", "hostfile", "launcher", "host-discovery"};
  for (const auto& [name, values] : file->options) {
    CLI::Option* const option = app.get_option_no_throw("--" + name);
    const bool is_of_command_line =
        name == "config" || name == "write-config" || name == "help" || name == "version";
    if (option == nullptr || is_of_command_line) {
      raw.options.warnings.push_back(
          fmt::format("{}: '{}' is no option of kolo-run and has no effect", raw.config, name));
      continue;
    }
    if (name == "env") {  // the command line wins for a variable that both name
      raw.options.set.insert(raw.options.set.begin(), values.begin(), values.end());
      continue;
    }
    if (has_ranks && of_nodes.contains(name)) continue;
    if (has_nodes && of_jobs.contains(name)) continue;
    if (option->count() > 0 || (has_hosts && of_hosts.contains(name))) continue;
    for (const std::string& value : values) option->add_result(value);
    option->run_callback();
  }
  for (const auto& [name, value] : file->variables) {
    const bool given = std::any_of(
        raw.options.set.begin(), raw.options.set.end(),
        [&](const std::string& item) { return item == name || item.starts_with(name + "="); });
    if (!given) raw.options.set.push_back(fmt::format("{}={}", name, value));
  }
}

ConfigFile to_file(const CLI::App& app, const Raw& raw) {
  ConfigFile file;
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_single_name();
    const bool of_this_call = name == "config" || name == "write-config" || name == "dry-run" ||
                              name == "check-build" || name == "help" || name == "version" ||
                              name == "env";
    if (option->count() > 0 && !of_this_call) file.options[name] = option->reduced_results();
  }
  for (const std::string& item : raw.options.set) {
    const auto equals = item.find('=');
    if (item.starts_with(kSecret)) continue;  // others may read the file
    if (item.starts_with("KOLO_") && equals != std::string::npos) {
      file.variables[item.substr(0, equals)] = item.substr(equals + 1);
    } else {
      file.options["env"].push_back(item);
    }
  }
  return file;
}

void take_program(const CLI::App& app, Options& options) {
  options.program = app.remaining();
  if (!options.program.empty() && options.program[0] == "--") {
    options.program.erase(options.program.begin());
  }
  if (options.program.empty()) throw CLI::RequiredError("a program to run");
  if (options.program[0].starts_with('-')) {
    throw CLI::ParseError(options.program[0] + " is no option of kolo-run",
                          CLI::ExitCodes::ExtrasError);
  }
}

/// Refuses an empty list of hosts, as from a variable that is not set; it would mean this host
/// alone.
void check_hosts(const CLI::App& app, const Options& options) {
  for (const auto& [name, value] :
       {std::pair("--host", &options.hosts), std::pair("--hostfile", &options.hostfile),
        std::pair("--host-discovery", &options.elastic.discovery)}) {
    if (app.count(name) > 0 && value->empty())
      throw CLI::ValidationError(fmt::format("{} '' names no host", name));
  }
}

void check_variables(const Options& options) {
  for (const std::string& item : options.set) {
    const std::string name = item.substr(0, item.find('='));
    if (is_name(name)) continue;
    throw CLI::ValidationError(fmt::format(
        "-x '{}': '{}' is no name of a variable: expected letters, digits and _", item, name));
  }
}

void warn_of_secret(Options& options) {
  const bool is_shown =
      std::any_of(options.set.begin(), options.set.end(),
                  [](const std::string& item) { return item.starts_with(kSecret); });
  if (!is_shown) return;
  options.warnings.push_back(
      "-x KOLO_SECRET=… shows the secret to all users of this host, as every command line; set "
      "KOLO_SECRET in the environment, or give --secret-file");
}

void check_elastic(const CLI::App& app, const Raw& raw) {
  const Options& options = raw.options;
  const ElasticOptions& elastic = options.elastic;
  const bool has_list = !options.hosts.empty() || !options.hostfile.empty();
  if (elastic.limits.least == 0) {
    for (const char* const name :
         {"--max-np", "--host-discovery", "--restarts", "--elastic-timeout", "--patience"}) {
      if (app.get_option(name)->count() > 0)
        throw CLI::ValidationError(fmt::format("{} requires --min-np", name));
    }
    return;
  }
  const bool is_of_node = options.nodes > 1 || raw.standalone || !options.ranks_per_node.empty();
  if (is_of_node && (elastic.limits.most > 0 || !elastic.discovery.empty())) {
    throw CLI::ValidationError(
        "--max-np and --host-discovery are for one kolo-run that starts all ranks: with one on "
        "each node, the job has --nproc-per-node ranks on each of --nnodes nodes");
  }
  if (options.is_foreign()) {
    for (const char* const name :
         {"--max-np", "--host-discovery", "--restarts", "--elastic-timeout"}) {
      if (app.get_option(name)->count() == 0) continue;
      throw CLI::ValidationError(
          fmt::format("{} is for ranks that kolo-run starts itself: {} starts none anew", name,
                      options.launcher));
    }
  }
  if (elastic.limits.most > 0 &&
      elastic.limits.most < std::max(options.ranks, elastic.limits.least)) {
    throw CLI::ValidationError(fmt::format("--max-np {} is less than {}", elastic.limits.most,
                                           options.ranks > elastic.limits.most
                                               ? fmt::format("-np {}", options.ranks)
                                               : fmt::format("--min-np {}", elastic.limits.least)));
  }
  if (elastic.discovery.empty()) return;
  if (has_list || options.launcher == "local") {
    throw CLI::ValidationError(
        "--host-discovery says which hosts there are, here and elsewhere: give neither -H, "
        "--hostfile nor --launcher local with it");
  }
}

void check_manner(const CLI::App& app, Raw& raw) {
  Options& options = raw.options;
  check_elastic(app, raw);
  const bool has_store = !options.is_foreign() || options.elastic.limits.least > 0;
  if (!has_store && app.count("--master-port") > 0) {
    throw CLI::ValidationError(
        fmt::format("--master-port is where kolo-run listens; with --launcher {} it does not",
                    options.launcher));
  }
  const bool of_node = options.nodes > 1 || raw.standalone || app.count("--node-rank") > 0;
  if (options.ranks_per_node.empty() && of_node) options.ranks_per_node = "1";
  if (options.ranks_per_node.empty()) {
    if (app.count("--master-addr") == 0) return;
    throw CLI::ValidationError(
        "--master-addr is for one kolo-run on each node (--nnodes); under which name other hosts "
        "reach this one is said by --address");
  }
  if (options.ranks > 0 || !options.hosts.empty() || !options.hostfile.empty()) {
    throw CLI::ValidationError(
        "--nproc-per-node starts the ranks of this node alone: give neither "
        "-np nor hosts with it");
  }
  if (options.launcher != "auto" && options.launcher != "local") {
    throw CLI::ValidationError(
        fmt::format("--nproc-per-node starts the ranks of this node by kolo-run itself, on each "
                    "node one; give -np alone with --launcher {}",
                    options.launcher));
  }
  if (raw.standalone && options.nodes > 1) {
    throw CLI::ValidationError(fmt::format("--standalone is one node, --nnodes {}", options.nodes));
  }
  if (options.node_rank >= options.nodes) {
    throw CLI::ValidationError(fmt::format("--node-rank {} is none of the --nnodes {} (0 to {})",
                                           options.node_rank, options.nodes, options.nodes - 1));
  }
}

}  // namespace

std::variant<Options, int> parse_options(int argc, char** argv) {
  Raw raw;
  CLI::App app("Starts the ranks of a program, here and on other hosts.", "kolo-run");
  describe(app, raw);
  app.failure_message([](const CLI::App* /*app*/, const CLI::Error& error) {
    return fmt::format("kolo-run: {}\nkolo-run --help says what it takes\n", error.what());
  });
  try {
    app.parse(with_long_options(app, argc, argv));
    warn_of_secret(raw.options);
    if (!raw.config.empty()) apply_file(app, raw);
    check_hosts(app, raw.options);
    check_variables(raw.options);
    check_manner(app, raw);
    raw.options.mapping = raw.map_by == "node" ? Mapping::kNode : Mapping::kSlot;
    if (!raw.write_config.empty()) {
      const Status written = write_config_file(raw.write_config, to_file(app, raw));
      if (!written.ok()) throw CLI::ValidationError(written.error().message);
      for (const std::string& line : raw.options.warnings) say(line);
      return 0;
    }
    if (!raw.options.checks_build) take_program(app, raw.options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::move(raw.options);
}

}  // namespace kolo::run
