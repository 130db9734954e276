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

constexpr std::uint32_t kTagSpace = UINT32_MAX;  ///< no communicator's
constexpr std::size_t kLong = 256 << 10;         ///< bytes of the longer message: beyond bursts
constexpr int kRounds = 20;
constexpr Microseconds kBudget{10'000};  ///< of one length

struct Pair {
  int first = 0;
  int second = 0;
};

/// The first two ranks that are on one host, or that are not.
std::optional<Pair> find_pair(const World& world, bool same_host) {
  for (int second = 1; second < world.size(); ++second)
    for (int first = 0; first < second; ++first)
      if (world.same_host(first, second) == same_host) return Pair{first, second};
  return std::nullopt;
}

class PingPong final : TransferListener {
 public:
  PingPong(Transport& transport, int peer, bool serves, const Abort& abort, Deadline deadline)
      : transport_(transport), peer_(peer), serves_(serves), abort_(abort), deadline_(deadline) {}

  struct Times {
    double least = 0;
    double median = 0;
  };

  /// Of a message of that many bytes, one way.
  Result<Times> time(std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    std::vector<double> samples;
    // The first round makes the connection, and is not counted.
    bool counts = false;
    auto begin = Clock::now();
    // The server decides when it is enough, and says so by the message's first byte.
    for (bool more = true; more;) {
      const auto before = Clock::now();
      if (serves_) {
        more = !counts || samples.empty() ||
               (static_cast<int>(samples.size()) < kRounds && Clock::now() - begin < kBudget);
        data.front() = static_cast<std::byte>(more);
        KOLO_TRY(move(true, data));
        KOLO_TRY(move(false, data));
      } else {
        KOLO_TRY(move(false, data));
        more = data.front() != std::byte{0};
        KOLO_TRY(move(true, data));
      }
      if (counts) {
        samples.push_back(Microseconds(Clock::now() - before).count() / 2);
      } else {
        counts = true;
        begin = Clock::now();
      }
    }
    const double least = *std::min_element(samples.begin(), samples.end());
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return Times{least, *middle};
  }

  void on_transfer_done(Transfer&) override { done_ = true; }

 private:
  Status move(bool out, std::span<std::byte> data) {
    const Tag tag{.communicator = kTagSpace, .step = 0, .operation = 0};
    Transfer transfer(*this, 0);
    done_ = false;
    if (out) {
      transport_.send(peer_, tag, data, transfer);
    } else {
      transport_.receive(peer_, tag, data, transfer);
    }
    KOLO_TRY(progress_until(
        transport_, [this] { return done_; }, abort_, deadline_,
        fmt::format("measuring the link to rank {}", peer_)));
    return transfer.status();
  }

  Transport& transport_;
  const int peer_;
  const bool serves_;
  const Abort& abort_;
  const Deadline deadline_;
  bool done_ = false;
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
  return fmt::format("{} {} {}", cost.latency_us, cost.us_per_byte, cost.reduce_us_per_byte);
}

Result<LinkCost> decode(const std::string& text, int rank) {
  LinkCost cost;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (double* const value : {&cost.latency_us, &cost.us_per_byte, &cost.reduce_us_per_byte}) {
    while (next != end && *next == ' ') ++next;
    const auto [rest, error] = std::from_chars(next, end, *value);
    if (error != std::errc())
      return KOLO_ERROR(kInternal, "rank {} sent no measurement of its link: '{}'", rank, text);
    next = rest;
  }
  return cost;
}

}  // namespace

Result<LinkCosts> probe_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                              const Device& device, const Abort& abort, Deadline deadline) {
  LinkCosts costs;
  for (const bool same_host : {true, false}) {
    const auto pair = find_pair(world, same_host);
    if (!pair) continue;
    std::string mine;
    const bool serves = world.rank() == pair->first;
    if (serves || world.rank() == pair->second) {
      PingPong link(transport, serves ? pair->second : pair->first, serves, abort, deadline);
      LinkCost cost;
      KOLO_ASSIGN(const auto shortest, link.time(1));
      KOLO_ASSIGN(const auto longest, link.time(kLong));
      // What disturbs a short message is mostly somebody else; a long one may profit from bursts.
      cost.latency_us = shortest.least;
      cost.us_per_byte = std::max(0.0, longest.median - cost.latency_us) / (kLong - 1);
      cost.reduce_us_per_byte = time_of_reduce(device);
      if (serves) mine = encode(cost);
    }
    KOLO_ASSIGN(
        const auto measured,
        bootstrap.exchange(same_host ? "link inside hosts" : "link across hosts", mine, deadline));
    KOLO_ASSIGN((same_host ? costs.inside : costs.across),
                decode(measured[static_cast<std::size_t>(pair->first)], pair->first));
  }
  return costs;
}

}  // namespace kolo
