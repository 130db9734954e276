#include "tools/perf/options.h"

#include "tools/perf/numbers.h"

#include <kolo/kolo.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <set>

namespace kolo::perf {
namespace {

constexpr const char* kDescription =
    "Measures kolo's collectives over sizes, every result verified, alone or against other "
    "libraries in the same run; or a training step's worth of gradients.";

constexpr const char* kFooter = R"(examples:
  mpirun -np 2 kolo-perf                                  # all-reduce, 8 B to 64 MiB
  mpirun -np 4 kolo-perf -b 1K -e 1G -f 4 -d bfloat16 -o avg
  mpirun -np 2 kolo-perf all -d all -o all -e 1M -f 16    # everything
  mpirun -np 2 kolo-perf --compare mpi,gloo -n 100 -J out.json
  mpirun -np 2 kolo-perf -e 1K -m 50 --compare mpi        # 50 operations a sample: below the clock
  mpirun -np 2 kolo-perf --protocol harness --compare mpi # until the last rank has ended
  mpirun -np 2 kolo-perf --step                           # the 161 gradients of ResNet-50
  mpirun -np 2 kolo-perf --step --compare mpi             # beside MPI_Allreduce of as many bytes
  mpirun -np 2 kolo-perf --step small                     # 1,000 tensors of 4 floats
  mpirun -np 2 kolo-perf --memory shared                  # on memory that the ranks share
  mpirun -np 2 kolo-perf --audit                          # kolo's choices beside the alternatives
  mpirun -np 2 kolo-perf --device cuda --compare nccl     # on the ranks' GPUs
  mpirun -np 2 kolo-perf --device cuda --step             # gradients in the GPUs' memory

Columns are those of nccl-tests. time: median of the repetitions, each as --protocol says; busbw:
algbw times nccl-tests' factor of the collective; #wrong: elements that differ from the exact result,
over all ranks and repetitions. Each repetition starts from buffers that its rank has just written, by
a barrier in shared memory (over several hosts by a small all-reduce of kolo). N/A: there is no such
form (a broadcast is always in place; only all-reduce, broadcast and all-gather are). root -1, redop
none: the collective has none.

state: near or far, by a ping-pong between two ranks around the repetitions; those during which it
changed are dropped, those of each state have a row. "-": not probed, or it changed all the time. An
asterisk: at a tenth of the readings or more, other programs wanted to run on the first host (busy in
the report): measure again when they have ended.

--compare: kolo/peer is the median of the repetitions' ratios (below 1: kolo is faster), then their
10th and 90th percentile. Libraries go round: kolo mpi gloo, mpi gloo kolo, ..., each with eight untimed
and eight timed repetitions in a row, from 16 MiB on with one. mpi is the MPI that kolo-perf is linked
with; tools/bench peers, in kolo's sources, compares with further ones, and oneCCL.

--audit: a line a size, of private memory and then of shared (--memory: of one): the algorithm that
kolo chooses, its time, the median ratio to the best alternative (1 or less: none is faster), and the
time of every other algorithm that can carry this size, all in turn and in place. NOT WITHIN: it takes
more than --within times the best one's time. SLOWER THAN: than a larger size, by more than that. Such
sizes are measured up to twice more. An asterisk as above: such a line does not count as wrong.

The report of -J is one object:
  kolo, ranks, hosts      version, number of ranks and of hosts
  options                 iters, warmup, batch, check, device, memory, protocol, rewrite
  rows[]                  one a size and state: collective, size (B), count, type, redop, root (null:
                          none), submission, state, probe_ns, busy (0 to 1), samples, dropped, and
    results[]             engine, in_place, time_us (median), p10_us, p50_us, p90_us, p99_us,
                          algbw_GBps, busbw_GBps, wrong (null: not verified)
    ratios[]              peer, in_place, median, p10, p90
  audit[]                 instead of rows with --audit: size, memory, state, busy, samples, chosen,
                          time_us, best (the alternative of the ratio), ratio, slower_than (a size;
                          null: none), fails (one of the two), others_us (by algorithm), wrong
  step                    instead of rows with --step: name, tensors, elements, wrong (of all);
                          step, raw, pack_unpack as results have their times; ratio_to_raw, ratio
                          (to raw and pack_unpack); peers[]: peer, wrong, raw, ratio (so with its
                          raw)

exit status: 0; 1 after wrong results, wrong choices (--audit) or an error; 2 after wrong options; 124 after -T.)";

template <class Value>
using Names = std::map<std::string, Value>;

const Names<ReduceOp> kOps = {{"sum", ReduceOp::kSum},      {"avg", ReduceOp::kAverage},
                              {"min", ReduceOp::kMin},      {"max", ReduceOp::kMax},
                              {"prod", ReduceOp::kProduct}, {"adasum", ReduceOp::kAdasum}};
const Names<Submission> kSubmissions = {{"in-order", Submission::kInOrder},
                                        {"negotiated", Submission::kNegotiated}};
/// Options that --audit does not take.
constexpr const char* kNotOfAudits[] = {"collective", "--datatype",   "--op",
                                        "--root",     "--submission", "--device",
                                        "--compare",  "--limit",      "--percentiles"};
/// Options that --step does not take.
constexpr const char* kOfSweepAlone[] = {
    "collective", "--minbytes",  "--maxbytes",   "--stepfactor", "--stepbytes", "--datatype",
    "--op",       "--root",      "--submission", "--agg_iters",  "--check",     "--rewrite",
    "--protocol", "--far-above", "--limit",      "--percentiles"};

Names<Collective> all_collectives() {
  Names<Collective> names;
  for (const Collective collective : kCollectives) names.emplace(to_string(collective), collective);
  return names;
}

template <class Value>
std::vector<std::string> keys_of(const Names<Value>& table, bool with_all) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) names.push_back(name);
  if (with_all) names.emplace_back("all");
  return names;
}

template <class Value>
std::vector<Value> values_of(const Names<Value>& table, const std::vector<std::string>& chosen) {
  std::vector<Value> values;
  for (const std::string& name : chosen) {
    if (name != "all") {
      values.push_back(table.at(name));
      continue;
    }
    for (const auto& [every, value] : table) values.push_back(value);
  }
  return values;
}

struct Texts {
  std::vector<std::string> collectives = {"allreduce"};
  std::vector<std::string> types = {"float32"};
  std::vector<std::string> ops = {"sum"};
  std::string submission = "in-order";
  std::string root = "0";
  int check = 1;
  int rewrite = 1;
  std::string protocol = "kolo";
  std::string memory = "private";
  std::string device = "host";
};

void add_what(CLI::App& app, Texts& texts, SweepOptions& sweep) {
  app.add_option("collective", texts.collectives, "what to measure; several, or all")
      ->check(CLI::IsMember(keys_of(all_collectives(), true)))
      ->capture_default_str();
  app.add_option("-b,--minbytes", sweep.min_bytes, "smallest size, bytes (suffix K, M, G, T)")
      ->transform(as_bytes(1))
      ->capture_default_str();
  app.add_option("-e,--maxbytes", sweep.max_bytes, "largest size, bytes (suffix K, M, G, T)")
      ->transform(as_bytes(0))
      ->capture_default_str();
  app.add_option("-f,--stepfactor", sweep.factor, "factor between sizes")
      ->check(number_within(1.01, 1e6))
      ->capture_default_str();
  app.add_option("-i,--stepbytes", sweep.increment, "bytes between sizes, instead of -f")
      ->transform(as_bytes(0));
  app.add_option("-d,--datatype", texts.types, "element types, or all")
      ->check(CLI::IsMember(keys_of(types_by_name(), true)))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-o,--op", texts.ops, "reduce operations, or all")
      ->check(CLI::IsMember(keys_of(kOps, true)))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-r,--root", texts.root, "root of broadcast, gather and scatter, or all")
      ->check(CLI::IsMember({"all"}) | CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  app.add_option(
         "--submission", texts.submission,
         "ordered, without negotiation; named, as the optimizer calls it; sendrecv is named "
         "always")
      ->check(CLI::IsMember(keys_of(kSubmissions, false)))
      ->capture_default_str();
}

void add_how(CLI::App& app, Texts& texts, Options& options) {
  SweepOptions& sweep = options.sweep;
  app.add_option("-n,--iters", sweep.series.iterations, "timed repetitions a size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", sweep.series.warmup, "untimed repetitions before")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("-m,--agg_iters", sweep.series.batch,
                 "operations a repetition, back to back; their mean is the sample, and one more "
                 "operation is verified")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-c,--check", texts.check, "1: verify every element; 0: do not")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option(
         "--rewrite", texts.rewrite,
         "1: buffers are rewritten before each repetition, untimed; 0: they are left as they "
         "are, and the last result alone is verified")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option(
         "--protocol", texts.protocol,
         "kolo: each rank times its call, and a sample is the mean over the ranks; harness: a "
         "sample is the time from when the last rank began until the last rank ended, by the clock "
         "of the one host that they must share")
      ->check(CLI::IsMember({"kolo", "harness"}))
      ->capture_default_str();
  app.add_option(
         "--memory", texts.memory,
         "of the buffers, and of a step's gradients: private, or shared, as kolo::allocate() "
         "gives it, or kolo::allocate_on_device()")
      ->check(CLI::IsMember({"private", "shared"}))
      ->capture_default_str();
  CLI::Option* const audit = app.add_flag(
      "--audit", options.audit,
      "all-reduces as kolo chooses the algorithm, beside every other algorithm; from 4 "
      "bytes on");
  app.add_option("--within", options.within,
                 "with --audit: what a choice may take of the best time")
      ->check(number_within(1, 1e6))
      ->needs(audit)
      ->capture_default_str();
  app.add_option(
         "--device", texts.device,
         "whose memory: host; cuda: each rank's GPU, by negotiated submission, timed until the GPU "
         "is done")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("-T,--timeout", options.timeout_s, "give up after so many seconds; 0: never")
      ->check(CLI::Range(0, 365 * 24 * 3600))
      ->capture_default_str();
  app.add_option(
         "--far-above", sweep.far_ns,
         "nanoseconds from core to core above which the machine's state is far; 0: do not probe")
      ->check(number_within(0, 1e9))
      ->capture_default_str();
  app.add_option("--compare", options.peers,
                 "measure these, too, in turn with kolo: mpi, gloo, oneccl; nccl with --device "
                 "cuda")
      ->check(CLI::IsMember({"mpi", "gloo", "oneccl", "nccl"}))
      ->delimiter(',');
  app.add_flag("--limit", options.limit, "measure a memcpy of the same bytes on all ranks, too");
  app.add_flag("-P,--percentiles", sweep.percentiles, "print the 10th, 90th and 99th percentile");
  app.add_option("-J,--json", options.json, "write the report to this file, too")
      ->check([](const std::string& path) { return path.empty() ? "'' is no file" : ""; });
}

/// Each library can be compared once; a second engine of it would measure the same.
void refuse_peers_named_twice(const std::vector<std::string>& peers) {
  std::set<std::string> seen;
  for (const std::string& peer : peers) {
    if (!seen.insert(peer).second)
      throw CLI::ValidationError("--compare", "'" + peer + "' is named twice");
  }
}

}  // namespace

std::optional<Options> parse(int argc, char** argv, int* exit_code) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "kolo-perf");
  app.footer(kFooter);
  app.set_version_flag("--version", "kolo " + version());
  add_what(app, texts, options.sweep);
  add_how(app, texts, options);
  CLI::Option* const step =
      app.add_option(
             "--step", options.step,
             "a step's gradients instead of the sweep: resnet50 (161, the default) or small "
             "(1,000 of 4 floats); always verified")
          ->expected(0, 1)
          ->check(CLI::IsMember({"resnet50", "small"}));
  for (const char* const name : kOfSweepAlone) step->excludes(app.get_option(name));
  CLI::Option* const audit = app.get_option("--audit")->excludes(step);
  for (const char* const name : kNotOfAudits) audit->excludes(app.get_option(name));
  try {
    app.parse(argc, argv);
    refuse_peers_named_twice(options.peers);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (step->count() > 0 && options.step.empty()) options.step = "resnet50";
  SweepOptions& sweep = options.sweep;
  sweep.collectives = values_of(all_collectives(), texts.collectives);
  sweep.types = values_of(types_by_name(), texts.types);
  sweep.ops = values_of(kOps, texts.ops);
  sweep.submission = kSubmissions.at(texts.submission);
  sweep.series.check = texts.check == 1;
  sweep.series.rewrite = texts.rewrite == 1;
  sweep.series.memory = texts.memory == "shared" ? Memory::kShared : Memory::kPrivate;
  if (app.count("--memory") > 0) options.memories = {sweep.series.memory};
  if (options.audit && app.count("--minbytes") == 0) sweep.min_bytes = sizeof(float);
  if (texts.protocol == "harness") sweep.series.protocol = Protocol::kHarness;
  options.on_gpu = texts.device == "cuda";
  options.all_roots = texts.root == "all";
  if (!options.all_roots) sweep.roots = {std::stoi(texts.root)};
  return options;
}

}  // namespace kolo::perf
