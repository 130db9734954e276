// kolo-run: starts the ranks of a program on this host and, by ssh, on others, and owns the store
// where they meet. Run by people and scripts. The main thread looks after the processes, the store
// has a thread of its own.
#include "runtime/base/check.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "runtime/topology/host.h"
#include "tools/run/job.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kolo;
using namespace kolo::run;

constexpr const char* kExamples = R"(examples:
  kolo-run -np 4 ./trainer --epochs 3           # four ranks on this host
  kolo-run -np 4 --tag-output ./trainer         # each line behind its rank, as [2]
  kolo-run -np 4 --output-dir logs ./trainer    # logs/rank.2.out, logs/rank.2.err
  kolo-run -H node1:8,node2:8 ./trainer         # 16 ranks on two hosts, by ssh
  kolo-run -np 8 --hostfile hosts -x NCCL_DEBUG=INFO -x HOME ./trainer
  kolo-run -np 2 --bind-to core --timeout 3600 ./trainer
  kolo-run -np 2 --dry-run ./trainer            # what would run

Without -H and --hostfile, the hosts are those of the Slurm or PBS allocation, else this one. Each
rank finds KOLO_RANK, KOLO_SIZE, KOLO_LOCAL_RANK, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR and MASTER_PORT in its environment. When a rank fails, all others are ended, and its exit
status (128 + N for signal N) is that of kolo-run; 124 after --timeout. Ctrl-C and SIGTERM are passed
on, a second one kills. The ranks of this host die with kolo-run.)";

struct Options {
  int ranks = 0;
  std::string hosts;
  std::string hostfile;
  std::string bind = "none";
  std::string map_by = "slot";
  std::string address;
  std::string agent;
  int timeout = 0;
  bool dry_run = false;
  JobOptions job;
  std::vector<std::string> set;
  std::vector<std::string> program;
};

void describe(CLI::App& app, Options& options) {
  app.footer(kExamples);
  app.prefix_command();
  app.add_option("-n,--np", options.ranks, "number of ranks (also -np); default: all slots")
      ->check(CLI::Range(1, 1 << 20));
  auto* const hosts = app.add_option("-H,--host", options.hosts, "hosts and slots: h1:2,h2:2");
  app.add_option("--hostfile", options.hostfile, "file of hosts, one a line: h1 slots=2")
      ->excludes(hosts);
  app.add_option("-x,--env", options.set, "NAME=value or NAME to forward; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("-t,--tag-output", options.job.tags_output, "each line behind its rank");
  app.add_option("--output-dir", options.job.output_directory, "a file of output for each rank")
      ->check(CLI::ExistingDirectory);
  app.add_option("--timeout", options.timeout, "seconds until the job is ended")
      ->check(CLI::Range(1, 365 * 24 * 3600));
  app.add_option("--bind-to", options.bind, "core: ranks of this host share out its cores")
      ->check(CLI::IsMember({"none", "core"}))
      ->capture_default_str();
  app.add_option("--map-by", options.map_by, "slot: fill a host, then the next; node: in turn")
      ->check(CLI::IsMember({"slot", "node"}))
      ->capture_default_str();
  app.add_option("--address", options.address,
                 "name or address under which other hosts reach this one; default: its name");
  app.add_option("--agent", options.agent,
                 "what starts a command on another host, before its name; default: ssh");
  app.add_flag("--dry-run", options.dry_run, "print what would run, and for whom");
}

/// -np as every mpirun has it, although it is no option of POSIX's kind.
std::vector<std::string> with_long_np(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    if (arguments[i] == "-np") arguments[i] = "--np";
    const CLI::Option* const option = app.get_option_no_throw(arguments[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  return arguments;
}

Result<std::vector<Host>> find_hosts(const Options& options, const Environment& environment) {
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  if (!options.hostfile.empty()) {
    std::ifstream file(options.hostfile);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) return KOLO_ERROR(kInvalidArgument, "cannot read {}", options.hostfile);
    return parse_hostfile(text.str());
  }
  KOLO_ASSIGN(auto hosts, allocated_hosts(environment, options.ranks));
  if (hosts.empty() && options.ranks == 0) {
    return KOLO_ERROR(kInvalidArgument, "give the number of ranks: -np 4");
  }
  if (hosts.empty()) hosts.push_back({this_host(), options.ranks});
  return hosts;
}

/// A port that was free a moment ago, for other libraries that rank 0 may use.
int free_port() {
  const auto listener = listen_at({"127.0.0.1", 0});
  return listener.ok() ? listener->port : 29500;
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Result<JobDescription> describe_job(const Options& options, const std::vector<Place>& places,
                                    const Environment& environment) {
  JobDescription job;
  const bool is_local = std::all_of(places.begin(), places.end(),
                                    [](const Place& p) { return is_this_host(p.host); });
  job.program = options.program;
  job.size = static_cast<int>(places.size());
  job.secret = environment.get("KOLO_SECRET").value_or(to_hex(random_bytes(16)));
  job.store = !options.address.empty() ? options.address : is_local ? "127.0.0.1" : this_host();
  const bool rank_0_is_here = is_this_host(places.front().host);
  job.master_addr = rank_0_is_here ? job.store : places.front().host;
  job.master_port = free_port();
  job.set = options.set;
  if (!options.agent.empty()) job.agent = split_words(options.agent);
  std::array<char, 4096> directory = {};
  if (::getcwd(directory.data(), directory.size()) != nullptr) job.directory = directory.data();
  const auto here = std::count_if(places.begin(), places.end(),
                                  [](const Place& p) { return is_this_host(p.host); });
  const auto cores = static_cast<int>(usable_cores().size());
  if (here > 0) job.threads = std::max(1, cores / static_cast<int>(here));
  if (options.bind == "core" && here > cores) {
    return KOLO_ERROR(kInvalidArgument, "--bind-to core: {} ranks on this host, but {} cores", here,
                      cores);
  }
  return job;
}

void print_plan(const JobDescription& job, const std::vector<Place>& places) {
  const Environment nothing({});
  for (const Place& place : places) {
    fmt::print("rank {} on {}:", place.rank, place.host);
    for (const auto& [name, value] : variables_of(job, place, nothing)) {
      if (name != "KOLO_SECRET") fmt::print(" {}={}", name, value);
    }
    for (const std::string& word : job.program) fmt::print(" {}", quoted(word));
    fmt::print("\n");
  }
}

Result<int> run_job(Options options) {
  const Environment environment = Environment::of_process();
  KOLO_ASSIGN(const auto hosts, find_hosts(options, environment));
  KOLO_ASSIGN(const auto places,
              place_ranks(hosts, options.ranks,
                          options.map_by == "node" ? Mapping::kNode : Mapping::kSlot));
  KOLO_ASSIGN(JobDescription job, describe_job(options, places, environment));
  block_signals();
  TcpStoreServer::Options store;
  // A foreign host may know this one by a name that is none here, so all addresses are open to it.
  if (job.store == "127.0.0.1") store.endpoint.host = job.store;
  store.size = job.size;
  store.secret = job.secret;
  KOLO_ASSIGN(const auto server, TcpStoreServer::start(std::move(store)));
  job.store = to_text(Endpoint{job.store, server->port()});
  if (options.dry_run) {
    print_plan(job, places);
    return 0;
  }
  options.job.binds_to_core = options.bind == "core";
  if (options.timeout > 0) options.job.timeout = std::chrono::seconds(options.timeout);
  return Job(std::move(job), options.job).run(places, environment);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Starts the ranks of a program, here and on other hosts.", "kolo-run");
  describe(app, options);
  try {
    app.parse(with_long_np(app, argc, argv));
    options.program = app.remaining();
    if (options.program.empty()) throw CLI::RequiredError("a program to run");
    if (options.program[0] == "--") options.program.erase(options.program.begin());
    if (options.program.empty()) throw CLI::RequiredError("a program to run");
    if (options.program[0].starts_with('-')) {
      throw CLI::ParseError(options.program[0] + " is no option of kolo-run",
                            CLI::ExitCodes::ExtrasError);
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto code = run_job(std::move(options));
  if (code.ok()) return *code;
  fmt::print(stderr, "kolo-run: {}\n", code.error().message);
  return 2;
}
