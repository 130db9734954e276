#include "runtime/bootstrap/clock_exchange.h"

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

namespace kolo {
namespace {

// The first round may also measure how late the ranks arrive. The best one counts.
constexpr std::size_t kRounds = 2;

using Stamps = std::array<std::int64_t, kRounds>;

Status read(const std::string& blob, void* to, std::size_t bytes) {
  if (blob.size() != bytes)
    return KOLO_ERROR(kMismatch, "a rank sent {} bytes for its clock instead of {}", blob.size(),
                      bytes);
  std::memcpy(to, blob.data(), bytes);
  return {};
}

/// Only rank 0's clock is read.
template <class Value>
std::string to_blob(const Value& value, int rank) {
  if (rank != 0) return {};
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

Result<ClockOffset> exchange_clock(Bootstrap& bootstrap, bool same_clock, Deadline deadline,
                                   const std::function<std::int64_t()>& now) {
  Stamps sent{};
  Stamps received{};
  Stamps sent_by_0{};
  for (std::size_t i = 0; i < kRounds; ++i) {
    sent[i] = now();
    KOLO_ASSIGN(const auto blobs, bootstrap.exchange(fmt::format("clock {}", i),
                                                     to_blob(sent[i], bootstrap.rank()), deadline));
    received[i] = now();
    KOLO_TRY(read(blobs.front(), &sent_by_0[i], sizeof sent_by_0[i]));
  }
  KOLO_ASSIGN(const auto blobs,
              bootstrap.exchange("clocks", to_blob(received, bootstrap.rank()), deadline));
  Stamps received_by_0{};
  KOLO_TRY(read(blobs.front(), received_by_0.data(), sizeof received_by_0));

  ClockOffset clock;
  if (!same_clock && bootstrap.rank() != 0) {
    auto lowest = std::numeric_limits<std::int64_t>::min();
    auto highest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < kRounds; ++i) {
      lowest = std::max(lowest, sent[i] - received_by_0[i]);
      highest = std::min(highest, received[i] - sent_by_0[i]);
    }
    clock.offset = lowest + (highest - lowest) / 2;
    clock.error = (highest - lowest + 1) / 2;
  }
  clock.zero = sent_by_0[0] + clock.offset;
  return clock;
}

}  // namespace kolo
