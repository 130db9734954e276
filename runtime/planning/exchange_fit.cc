#include "runtime/planning/exchange_fit.h"

#include <algorithm>
#include <cmath>

namespace kolo {
namespace {

/// Rows before `one_hop` go in one hop, rows from there to `two_hops` in two.
struct Ends {
  std::size_t one_hop = 0;
  std::size_t two_hops = 0;
};

/// What another way must gain, or noise would decide differently in each run.
constexpr double kLeastGain = 0.05;

double cost(std::span<const ExchangeTimes> rows, Ends ends, Ends usual) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto time_by = [&](Ends by) {
      return i < by.one_hop    ? rows[i].one_shot_us
             : i < by.two_hops ? rows[i].two_shot_us
                               : rows[i].schedule_us;
    };
    const double time = time_by(ends);
    sum += std::log(time == time_by(usual) ? (1 - kLeastGain) * time : time);
  }
  return sum;
}

/// The cheapest ends with `one_hop` at most `most_one_hop` and `two_hops` at least
/// `least_two_hops`. The `usual` ones are those of the constants.
Ends cheapest(std::span<const ExchangeTimes> rows, std::size_t most_one_hop,
              std::size_t least_two_hops, Ends usual) {
  Ends best{0, rows.size()};
  double least = ExchangeTimes::kNever;
  for (std::size_t one = 0; one <= most_one_hop; ++one) {
    for (std::size_t two = std::max(one, least_two_hops); two <= rows.size(); ++two) {
      const double sum = cost(rows, {one, two}, usual);
      if (sum >= least) continue;
      least = sum;
      best = {one, two};
    }
  }
  return best;
}

/// Bytes of the largest all-reduce before the row `end`; before the first one, what is not measured
/// keeps its limit.
std::size_t bytes_below(std::span<const ExchangeTimes> rows, std::size_t end, std::size_t limit) {
  return end == 0 ? std::min(limit, rows.front().bytes - 1) : rows[end - 1].bytes;
}

std::size_t rows_up_to(std::span<const ExchangeTimes> rows, std::size_t bytes) {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [&](const auto& row) { return row.bytes <= bytes; }));
}

}  // namespace

ExchangeLimits fitted(ExchangeLimits limits, std::span<const ExchangeTimes> times) {
  const auto arena = std::find_if(times.begin(), times.end(),
                                  [](const ExchangeTimes& row) { return row.in_arena; });
  const auto privates = static_cast<std::size_t>(arena - times.begin());
  if (const auto rows = times.first(privates); !rows.empty()) {
    const Ends ends = cheapest(
        rows, rows.size(), 0, {rows_up_to(rows, limits.one_shot), rows_up_to(rows, limits.copied)});
    limits.one_shot = bytes_below(rows, ends.one_hop, limits.one_shot);
    if (ends.two_hops < rows.size())
      limits.copied = bytes_below(rows, ends.two_hops, limits.copied);
  }
  if (const auto rows = times.subspan(privates); !rows.empty()) {
    const Ends ends = cheapest(
        rows, rows_up_to(rows, limits.one_shot), rows_up_to(rows, limits.copied),
        {rows_up_to(rows, limits.two_shot_in_arena - 1), rows_up_to(rows, limits.in_arena)});
    limits.two_shot_in_arena = ends.one_hop == rows.size() ? SIZE_MAX : rows[ends.one_hop].bytes;
    if (ends.two_hops < rows.size())
      limits.in_arena = bytes_below(rows, ends.two_hops, limits.in_arena);
  }
  return limits;
}

}  // namespace kolo
