#include "runtime/tuning/link_probe.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "transport/wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::uint32_t kTagSpace = UINT32_MAX;  ///< no communicator has this tag space
constexpr std::size_t kLong = 128 << 10;         ///< bytes of the longer message
constexpr int kUncounted = 3;  ///< rounds that open connections and use up a link's burst
constexpr int kRounds = 20;
constexpr int kCrowdTurns = 8;
constexpr int kCrowdRounds = 6;                         ///< rounds of a turn
constexpr Microseconds kBudget{7'000};                  ///< for one message length
constexpr std::chrono::milliseconds kLookInterval{50};  ///< how often to look for lost ranks

struct Pair {
  int first = 0;
  int second = 0;
};

/// The first two ranks that share a host, or that do not.
std::optional<Pair> find_pair(const World& world, bool same_host) {
  const HostLayout& layout = world.layout();
  for (int second = 1; second < world.size(); ++second) {
    const int first = same_host ? layout.members(layout.host_of(second)).front() : 0;
    if (first < second && world.same_host(first, second) == same_host) return Pair{first, second};
  }
  return std::nullopt;
}

/// The ranks of each host, or the first ranks of all hosts, their second ranks, …: circles in which
/// each rank sends one message at a time. Circles of one rank are left out.
std::vector<std::vector<int>> circles_of(const World& world, bool same_host) {
  std::vector<std::vector<int>> circles;
  for (int host = 0; host < world.layout().hosts(); ++host) {
    const std::vector<int>& ranks = world.layout().members(host);
    if (same_host) circles.push_back(ranks);
    for (std::size_t i = 0; !same_host && i < ranks.size(); ++i) {
      circles.resize(std::max(circles.size(), i + 1));
      circles[i].push_back(ranks[i]);
    }
  }
  std::erase_if(circles, [](const auto& circle) { return circle.size() < 2; });
  return circles;
}

/// Two ranks that send to each other at once, as in most rounds of an all-reduce. A link with a
/// token bucket lets a burst through after a pause. If the ranks sent by turns, each direction
/// would rest half of the time and seem twice as fast.
class ProbeExchange final : TransferListener {
 public:
  ProbeExchange(Transport& transport, const ProbeLimits& limits)
      : transport_(transport), limits_(limits) {}

  struct Times {
    double least = 0;
    double median = 0;
  };

  /// Times of exchanging `bytes` bytes with `peer` in both directions at once.
  Result<Times> time(std::size_t bytes, int peer, bool decides) {
    std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(bytes);
    std::vector<double> samples;
    auto begin = Clock::now();
    // One rank decides when there are enough rounds, and says so in its message's first byte.
    int round = 0;
    for (bool more = true; more; ++round) {
      if (round == kUncounted) begin = Clock::now();
      if (decides) {
        more =
            round <= kUncounted || (round < kUncounted + kRounds && Clock::now() - begin < kBudget);
        out.front() = static_cast<std::byte>(more);
      }
      const auto before = Clock::now();
      KOLO_TRY(exchange(out, peer, in, peer));
      if (!decides) more = in.front() != std::byte{0};
      if (round >= kUncounted) samples.push_back(Microseconds(Clock::now() - before).count());
    }
    return times_of(samples);
  }

  /// Times of a round in which each rank of a circle sends a byte to `next` and receives one from
  /// `previous`. A sample is a turn of several rounds. If ranks share cores, a rank that gets a
  /// core finds the next messages already there. Then most rounds take no time, except the few that
  /// all ranks wait for.
  Result<Times> time_of_crowd(int next, int previous) {
    std::byte out{};
    std::byte in{};
    for (int round = 0; round < kUncounted; ++round)
      KOLO_TRY(exchange({&out, 1}, next, {&in, 1}, previous));
    std::vector<double> samples;
    for (int turn = 0; turn < kCrowdTurns; ++turn) {
      const auto before = Clock::now();
      for (int round = 0; round < kCrowdRounds; ++round)
        KOLO_TRY(exchange({&out, 1}, next, {&in, 1}, previous));
      samples.push_back(Microseconds(Clock::now() - before).count() / kCrowdRounds);
    }
    return times_of(samples);
  }

  void on_transfer_done(Transfer&) override { --under_way_; }

 private:
  static Times times_of(std::vector<double>& samples) {
    const double least = *std::min_element(samples.begin(), samples.end());
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return {least, *middle};
  }

  Status exchange(std::span<std::byte> out, int to, std::span<std::byte> in, int from) {
    const Tag tag{.communicator = kTagSpace, .step = 0, .operation = 0};
    Transfer receive(*this, 0);
    Transfer send(*this, 0);
    under_way_ = 2;
    transport_.receive(from, tag, in, receive);
    transport_.send(to, tag, out, send);
    Status lost;
    // A send can fail without a lost rank; then nothing arrives from the peer either. So stop on
    // any failure.
    const auto failed = [&] { return !send.status().ok() || !receive.status().ok(); };
    Status waited = progress_until(
        transport_, [&] { return under_way_ == 0 || failed() || !(lost = look_for_losses()).ok(); },
        limits_.abort, limits_.deadline,
        fmt::format("measuring the links to rank {} and from rank {}", to, from));
    // A lost rank explains more than the transfer that failed because of it.
    if (waited.ok() && lost.ok() && failed()) {
      transport_.progress();  // reports the loss
      lost = limits_.losses();
    }
    for (const Status& next : {lost, send.status(), receive.status()})
      if (waited.ok()) waited = next;
    if (waited.ok()) return waited;
    waited = limits_.give_up(waited.error());
    transport_.fail_all(waited.error());  // ends the transfers
    return waited;
  }

  Status look_for_losses() {
    // Rarely enough not to disturb the measurement.
    if (++polls_ % 64 != 0) return {};
    const auto now = Clock::now();
    if (now < next_look_) return {};
    next_look_ = now + kLookInterval;
    return limits_.losses();
  }

  Transport& transport_;
  const ProbeLimits& limits_;
  int under_way_ = 0;
  unsigned polls_ = 0;
  Clock::time_point next_look_ = Clock::now() + kLookInterval;
};

double time_of_reduce(const Device& device) {
  std::vector<std::byte> a(kLong), b(kLong);
  const std::byte* const sources[] = {a.data(), b.data()};
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto before = Clock::now();
    device.reduce(DataType::kFloat32, ReduceOp::kSum, a.data(), sources, kLong / sizeof(float), {});
    least = std::min(least, Microseconds(Clock::now() - before).count());
  }
  return least / kLong;
}

std::string encode(const LinkCost& cost) {
  std::string text;
  for (const auto number : kLinkCostNumbers) text += fmt::format("{} ", cost.*number);
  return text;
}

Result<LinkCost> decode(const std::string& text, int rank) {
  LinkCost cost;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (const auto number : kLinkCostNumbers) {
    const auto [rest, error] = std::from_chars(next, end, cost.*number);
    if (error != std::errc() || rest == end)
      return KOLO_ERROR(kInternal, "rank {} sent no measurement of its link: '{}'", rank, text);
    next = rest + 1;
  }
  return cost;
}

/// Cost of a message in a circle of all ranks of a host, or of one rank of each host; 0 on a rank
/// in no circle. All circles start together, because the cost is that of all of them at once.
Result<double> time_of_circles(ProbeExchange& exchange, Bootstrap& bootstrap, const World& world,
                               bool same_host, Deadline deadline) {
  const auto circles = circles_of(world, same_host);
  if (circles.size() > 1) {
    KOLO_TRY(bootstrap.exchange(same_host ? "all links inside hosts" : "all links across hosts", "",
                                deadline));
  }
  double crowd = 0;
  for (const auto& circle : circles) crowd += static_cast<double>(circle.size());
  double cost = 0;
  for (const auto& circle : circles) {
    const auto me = std::find(circle.begin(), circle.end(), world.rank());
    if (me == circle.end()) continue;
    const int next = me + 1 == circle.end() ? circle.front() : me[1];
    const int previous = me == circle.begin() ? circle.back() : me[-1];
    KOLO_ASSIGN(const auto round, exchange.time_of_crowd(next, previous));
    cost = round.median / crowd;
  }
  return cost;
}

}  // namespace

Status open_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                  const ProbeLimits& limits) {
  for (const bool same_host : {true, false}) {
    if (!find_pair(world, same_host)) continue;
    ProbeExchange exchange(transport, limits);
    KOLO_TRY(time_of_circles(exchange, bootstrap, world, same_host, limits.deadline));
    KOLO_TRY(bootstrap.exchange(same_host ? "links inside hosts" : "links across hosts", "",
                                limits.deadline));
  }
  return {};
}

Result<LinkCosts> probe_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                              const Device& device, const ProbeLimits& limits) {
  LinkCosts costs;
  for (const bool same_host : {true, false}) {
    const auto pair = find_pair(world, same_host);
    if (!pair) continue;
    LinkCost cost;
    const int rank = world.rank();
    const bool decides = rank == pair->first;
    ProbeExchange exchange(transport, limits);
    if (decides || rank == pair->second) {
      const int peer = decides ? pair->second : pair->first;
      KOLO_ASSIGN(const auto shortest, exchange.time(1, peer, decides));
      KOLO_ASSIGN(const auto shorter,
                  exchange.time(static_cast<std::size_t>(LinkCost::kShortMessage), peer, decides));
      KOLO_ASSIGN(const auto longest, exchange.time(kLong, peer, decides));
      // Other processes disturb short messages, so use the least time. A long message may profit
      // from bursts, so use the median.
      cost.latency_us = shortest.least;
      cost.us_per_byte = std::max(0.0, longest.median - cost.latency_us) / (kLong - 1);
      const double even = LinkCost::kShortMessage * cost.us_per_byte;
      cost.early_us = std::clamp(even - (shorter.least - cost.latency_us), 0.0, even);
      cost.reduce_us_per_byte = time_of_reduce(device);
    }
    KOLO_ASSIGN(cost.crowd_us,
                time_of_circles(exchange, bootstrap, world, same_host, limits.deadline));
    const std::string mine = decides ? encode(cost) : "";
    KOLO_ASSIGN(const auto measured,
                bootstrap.exchange(same_host ? "link inside hosts" : "link across hosts", mine,
                                   limits.deadline));
    KOLO_ASSIGN((same_host ? costs.inside : costs.across),
                decode(measured[static_cast<std::size_t>(pair->first)], pair->first));
  }
  return costs;
}

}  // namespace kolo
