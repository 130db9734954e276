#include "runtime/base/check.h"
#include "runtime/base/environment.h"

#include <kolo/config.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <variant>

namespace kolo {
namespace {

using Integer = std::int64_t Config::*;
using Text = std::string Config::*;

/// Whether all ranks must have the same value.
enum class Scope : std::uint8_t { kRank, kWorld };

struct Range {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

struct Spec {
  std::string_view name;
  std::variant<Integer, Text> field;
  std::string_view unit;
  Range range;                          ///< for numbers
  std::vector<std::string_view> words;  ///< allowed texts; empty: any text
  Scope scope;
  std::string_view purpose;
};

Spec number(std::string_view name, Integer field, std::string_view unit, Range range, Scope scope,
            std::string_view purpose) {
  return {name, field, unit, range, {}, scope, purpose};
}

Spec text(std::string_view name, Text field, std::string_view unit,
          std::vector<std::string_view> words, std::string_view purpose,
          Scope scope = Scope::kRank) {
  return {name, field, unit, {}, std::move(words), scope, purpose};
}

constexpr std::string_view kBytes = "bytes";
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr Range kSeconds = {1, 365 * 24 * 3600};

/// The one description of every knob. Its field in Config holds the default.
const std::vector<Spec>& specs() {
  using enum Scope;
  static const std::vector<Spec> table = {
      text("KOLO_LOG_LEVEL", &Config::log_level, "level",
           {"trace", "debug", "info", "warning", "error", "off"},
           "Least severity of what is logged to stderr; info, debug and trace show UCX's own "
           "errors, too."),
      text("KOLO_INIT_METHOD", &Config::init_method, "method", {},
           "How ranks find each other, before what the launcher says: see docs/launching.md."),
      number("KOLO_RANK", &Config::rank, "rank", {0, kMostRanks - 1}, kRank,
             "Who this process is, before what the launcher says; with KOLO_SIZE."),
      number("KOLO_SIZE", &Config::size, "ranks", {1, kMostRanks}, kRank,
             "Number of processes, before what the launcher says; with KOLO_RANK."),
      number("KOLO_PROCESS", &Config::process, "process", {0, 1'000'000'000}, kRank,
             "Number of this process in an elastic job; kolo-run sets it."),
      number("KOLO_LOCAL_RANK", &Config::local_rank, "rank", {0, kMostRanks - 1}, kRank,
             "Rank among those of the host, as the launcher counts."),
      text("KOLO_SECRET", &Config::secret, "text", {},
           "What processes must prove to know while they meet; equal on all ranks of a job."),
      text("KOLO_SECRET_FILE", &Config::secret_file, "path", {},
           "File of mode 600 that holds the secret, where KOLO_SECRET is not set."),
      text("KOLO_HOST_ID", &Config::host_id, "text", {},
           "Overrides the identity of this host, so that one machine can pose as several."),
      text("KOLO_INTERFACE", &Config::interface, "network", {},
           "Network device of messages between ranks, as eth0 or mlx5_0:1. Not set: what "
           "UCX_NET_DEVICES says, else the best."),
      number("KOLO_INIT_TIMEOUT", &Config::init_timeout_s, "seconds", kSeconds, kRank,
             "How long each phase of the bootstrap may take."),
      number("KOLO_OPERATION_TIMEOUT", &Config::operation_timeout_s, "seconds", kSeconds, kRank,
             "How long ranks may take to agree on an operation, and again to run it."),
      number("KOLO_HEARTBEAT_TIMEOUT", &Config::heartbeat_timeout_s, "seconds", kSeconds, kWorld,
             "A rank that is not heard of for so long is lost: its host, network or process is."),
      number(
          "KOLO_STALL_WARNING", &Config::stall_warning_s, "seconds", kSeconds, kRank,
          "After this long a tensor, or a join, that some ranks lack is reported, and an operation "
          "that has not ended."),
      number("KOLO_FUSION_THRESHOLD", &Config::fusion_threshold, kBytes, {1, kGiB}, kWorld,
             "Largest fusion buffer."),
      number(
          "KOLO_FUSION_MAX_TENSOR", &Config::fusion_max_tensor, kBytes, {0, kGiB}, kWorld,
          "A tensor of at least this size, of device memory of eight times this size, is reduced "
          "where it lies."),
      number("KOLO_CHUNK_SIZE", &Config::chunk_size, kBytes, {1024, kGiB}, kWorld,
             "What one message of a pipelined schedule carries at most."),
      number("KOLO_CHUNKS_IN_FLIGHT", &Config::chunks_in_flight, "blocks", {1, 64}, kWorld,
             "Ring blocks that are under way at once."),
      number("KOLO_REDUCE_THREADS", &Config::reduce_threads, "threads", {1, 256}, kRank,
             "Threads that share a rank's large sums and copies, the one that drives included: for "
             "hosts with more cores than ranks."),
      text("KOLO_ALGORITHM", &Config::algorithm, "algorithm",
           {"auto", "one_shot", "two_shot", "mapped", "ring", "bidirectional_ring",
            "recursive_doubling", "halving_doubling", "double_tree", "hierarchical"},
           "Of all-reduces; auto: the cheapest. one_shot, two_shot (in-order calls that fit) and "
           "mapped: where ranks share memory, else as auto.",
           kWorld),
      text("KOLO_OPERATIONS", &Config::operations, "library", {"kolo", "nccl"},
           "Who does all-reduces of device memory; nccl needs a GPU for each rank.", kWorld),
      number("KOLO_DETERMINISTIC", &Config::deterministic, "switch", {0, 1}, kWorld,
             "1: sums do not depend on what they are fused with, nor on the link's speed."),
      number("KOLO_WIRE_CHECK", &Config::wire_check, "switch", {0, 1}, kWorld,
             "1: every message has a checksum, damage to one ends the job with an error; all data "
             "goes by messages, none through shared memory."),
      text("KOLO_CHECK_FINITE", &Config::check_finite, "mode", {"off", "warn", "error"},
           "Whether each rank looks for NaN and infinity in what it gives to a sum; error: that "
           "call then fails on all ranks.",
           kWorld),
      number(
          "KOLO_LINK_CACHE", &Config::link_cache, "switch", {0, 1}, kWorld,
          "1: what links were measured to cost is kept in a file for a day; 0: it is measured at "
          "each start."),
      text("KOLO_CACHE_DIR", &Config::cache_dir, "path", {},
           "Folder for the file of KOLO_LINK_CACHE; else kolo below $XDG_CACHE_HOME, or below "
           "~/.cache."),
      number(
          "KOLO_SHARED_MEMORY", &Config::shared_memory, kBytes, {0, kGiB}, kWorld,
          "A rank's window that the other ranks of its host map; 0: messages carry everything; so "
          "they do below 262144, with a warning."),
      number(
          "KOLO_NUMA_NODES", &Config::numa_nodes, "nodes", {0, 1024}, kWorld,
          "For tests: lays the ranks of each host in so many NUMA nodes, in blocks by local rank; "
          "0: as they are."),
      text("KOLO_DEVICE", &Config::device, "CUDA device", {},
           "This rank's, as this process numbers them: 0 or cuda:0; cpu: none; auto: by its local "
           "rank."),
      number("KOLO_DEVICE_MEMORY", &Config::device_memory, kBytes, {0, 16 * kGiB}, kWorld,
             "A rank's window of CUDA memory that the other ranks of its host map, half of it for "
             "process sets where there are more than two ranks; 0: the host's memory carries it."),
      number("KOLO_DEVICE_ARENA", &Config::device_arena, kBytes, {0, 1024 * kGiB}, kRank,
             "CUDA memory for gradient buckets and kolo::shared_zeros(), which the other ranks of "
             "the host reach where it is."),
      number("KOLO_DEVICE_CHUNK", &Config::device_chunk, kBytes, {1, kGiB}, kWorld,
             "Pieces of CUDA memory that goes over the network, some of which are copied while "
             "others are on their way; less than one is copied whole."),
      text("KOLO_GPUDIRECT", &Config::gpudirect, "mode", {"auto", "off", "on"},
           "Whether network cards read and write CUDA memory themselves: auto: where all ranks' "
           "can; on: else init of a job over several hosts fails.",
           kWorld),
      number("KOLO_ARENA", &Config::arena, kBytes, {0, 1024 * kGiB}, kRank,
             "Address space for kolo::allocate(); memory is taken as it is allocated."),
      number("KOLO_BATCH_WINDOW", &Config::batch_window_us, "microseconds", {0, 1'000'000}, kRank,
             "How long a ready tensor may wait for company unless somebody waits for it."),
      number("KOLO_BATCH_SIZE", &Config::batch_size, kBytes, {0, kGiB}, kRank,
             "Ready tensors of this many bytes, of device memory of eight times as many, are "
             "announced at once."),
      number("KOLO_CACHE_CAPACITY", &Config::cache_capacity, "names", {0, 1 << 20}, kWorld,
             "Names whose negotiation is remembered; 0 switches it off."),
      number(
          "KOLO_PLAN_LOCK", &Config::plan_lock, "steps", {0, 1024}, kWorld,
          "After so many equal steps ranks agree on later ones without rank 0, and inside a host "
          "without messages; 0: never."),
      number("KOLO_CONTROL_DEGREE", &Config::control_degree, "ranks", {1, 1 << 20}, kWorld,
             "To how many ranks a rank passes agreements on, and from how many it takes "
             "announcements."),
      text("KOLO_TIMELINE", &Config::timeline, "path", {},
           "File for a timeline of this rank, for Perfetto; %r becomes the rank."),
      number("KOLO_TIMELINE_STEPS", &Config::timeline_steps, "switch", {0, 1}, kRank,
             "1: the timeline has each step of a schedule, too."),
      text("KOLO_FLIGHT_RECORDER", &Config::flight_recorder, "folder", {},
           "Where each rank keeps its last operations in a file, which stays after a failure; else "
           "$TMPDIR or /tmp; 0: nowhere."),
  };
  return table;
}

std::string value_of(const Config& config, const Spec& spec) {
  if (const auto* field = std::get_if<Text>(&spec.field)) return config.*(*field);
  const std::int64_t value = config.*std::get<Integer>(spec.field);
  return value < 0 ? "" : std::to_string(value);  // no valid value is negative: not set
}

std::string range_of(const Spec& spec) {
  if (std::holds_alternative<Integer>(spec.field)) {
    return fmt::format("{} to {}", spec.range.lowest, spec.range.highest);
  }
  return spec.words.empty() ? "any text" : fmt::format("{}", fmt::join(spec.words, ", "));
}

/// Parses a number. Bytes may have a suffix K, M or G (powers of 1024). No knob is negative.
bool parse_integer(const Spec& spec, std::string_view input, std::int64_t& value) {
  int shift = 0;
  if (spec.unit == kBytes && !input.empty()) {
    const auto suffix = std::string_view("KkMmGg").find(input.back());
    if (suffix != std::string_view::npos) {
      shift = 10 * (static_cast<int>(suffix) / 2 + 1);
      input.remove_suffix(1);
    }
  }
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(input.data(), input.data() + input.size(), number);
  if (error != std::errc() || rest != input.data() + input.size()) return false;
  if (number < 0 || number > (spec.range.highest >> shift)) return false;
  value = number << shift;
  return value >= spec.range.lowest;
}

bool parse_text(const Spec& spec, const std::string& input, std::string& value) {
  value = input;
  return spec.words.empty() ||
         std::find(spec.words.begin(), spec.words.end(), input) != spec.words.end();
}

Status apply(Config& config, const Spec& spec, const std::string& value) {
  const auto take = [&](auto field, auto parse) {
    auto parsed = config.*field;
    const bool valid = parse(spec, value, parsed);
    if (valid) config.*field = std::move(parsed);
    return valid;
  };
  const bool valid = std::holds_alternative<Text>(spec.field)
                         ? take(std::get<Text>(spec.field), parse_text)
                         : take(std::get<Integer>(spec.field), parse_integer);
  if (valid) return {};
  return KOLO_ERROR(kInvalidArgument, "{}='{}' is not valid: expected {}, {}{} (default {})",
                    spec.name, value, spec.unit, range_of(spec),
                    spec.unit == kBytes ? ", with a suffix K, M or G if you like" : "",
                    value_of(Config(), spec));
}

/// Edit distance, for "did you mean".
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string unknown_variable(std::string_view name) {
  const auto nearest =
      std::min_element(specs().begin(), specs().end(), [&](const Spec& a, const Spec& b) {
        return distance(name, a.name) < distance(name, b.name);
      });
  std::string line = fmt::format("unknown variable {} has no effect", name);
  if (distance(name, nearest->name) <= 4) line += fmt::format("; did you mean {}?", nearest->name);
  return line;
}

}  // namespace

Result<Config> Config::from_environment(const Environment& environment) {
  Status invalid;
  Config config = from_environment(environment, invalid);
  if (!invalid.ok()) return std::move(invalid).error();
  return config;
}

Config Config::from_environment(const Environment& environment, Status& invalid) {
  Config config;
  for (const Spec& spec : specs()) {
    const auto value = environment.get(spec.name);
    Status applied = value ? apply(config, spec, *value) : Status();
    if (invalid.ok()) invalid = std::move(applied);
  }
  if (!environment.get("KOLO_FLIGHT_RECORDER"))
    config.flight_recorder = environment.get("TMPDIR").value_or("/tmp");
  if (config.cache_dir.empty()) {
    if (const auto cache = environment.get("XDG_CACHE_HOME")) {
      config.cache_dir = *cache + "/kolo";
    } else if (const auto home = environment.get("HOME")) {
      config.cache_dir = *home + "/.cache/kolo";
    }
  }
  for (const auto& [name, value] : environment.variables()) {
    if (!std::string_view(name).starts_with("KOLO_")) continue;
    const bool known = std::any_of(specs().begin(), specs().end(),
                                   [&](const Spec& spec) { return spec.name == name; });
    if (!known) config.warnings.push_back(unknown_variable(name));
  }
  return config;
}

std::vector<std::string> Config::agreed_settings() const {
  std::vector<std::string> settings;
  for (const Spec& spec : specs()) {
    if (spec.scope == Scope::kWorld)
      settings.push_back(fmt::format("{}={}", spec.name, value_of(*this, spec)));
  }
  return settings;
}

std::vector<Knob> knobs() {
  std::vector<Knob> rows;
  for (const Spec& spec : specs()) {
    rows.push_back({std::string(spec.name), std::string(spec.unit), value_of(Config(), spec),
                    range_of(spec), std::string(spec.purpose)});
  }
  return rows;
}

}  // namespace kolo
