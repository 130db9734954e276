#include "tools/perf/sweep.h"

#include "runtime/device/element.h"
#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace kolo::perf {
namespace {

// Small whole numbers, so that results are exact in every type at any number of ranks in use. A
// product takes ones and a few twos.
int input_of(const SweepOptions& options, std::size_t element, int rank) {
  const int value = static_cast<int>(element % 5) + rank % 3;
  if (options.type == DataType::kBool) return value % 2;
  return options.op == ReduceOp::kProduct ? 1 + (value == 3 ? 1 : 0) : value;
}

/// What the ranks' inputs become, unless it is an average.
double expected_of(const SweepOptions& options, std::size_t element) {
  double result = input_of(options, element, 0);
  for (int r = 1; r < size(); ++r) {
    const double next = input_of(options, element, r);
    switch (options.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
      case ReduceOp::kAdasum:
        result = options.type == DataType::kBool ? std::max(result, next) : result + next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kProduct:
        result *= next;
        break;
    }
  }
  return result;
}

bool is_integer(DataType type) {
  return type == DataType::kInt64 || type == DataType::kInt32 || type == DataType::kInt16 ||
         type == DataType::kInt8 || type == DataType::kUInt8;
}

/// One size: its buffers, and what is done with them.
class Case {
 public:
  Case(const SweepOptions& options, std::size_t count)
      : options_(options),
        count_(count),
        pattern_(count * size_of(options.type)),
        input_(pattern_.size()),
        output_(pattern_.size()) {
    for (std::size_t i = 0; i < count; ++i) {
      store_element(options.type, pattern_.data() + i * size_of(options.type),
                    input_of(options, i, rank()));
    }
  }

  Timing time(bool in_place) {
    std::vector<double> samples;
    std::byte* const output = in_place ? input_.data() : output_.data();
    for (int i = 0; i < options_.warmup + options_.iterations; ++i) {
      // Untimed: each operation starts from memory that this rank has just written.
      std::memcpy(input_.data(), pattern_.data(), pattern_.size());
      const double took = time_once([&] { call(input_.data(), output); });
      if (i >= options_.warmup) samples.push_back(took);
    }
    return mean_over_ranks(summarize(std::move(samples)));
  }

  /// Wrong elements over all ranks.
  std::int64_t wrong(bool in_place) const {
    const std::byte* const result = in_place ? input_.data() : output_.data();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const bool right = is_right(expected_of(options_, i),
                                  load_element(options_.type, result + i * size_of(options_.type)));
      wrong += right ? 0 : 1;
    }
    allreduce_ordered(&wrong, &wrong, 1, DataType::kInt64, ReduceOp::kSum);
    return wrong;
  }

 private:
  void call(const std::byte* input, std::byte* output) const {
    if (options_.door == ApiDoor::kOrdered) {
      allreduce_ordered(input, output, static_cast<std::int64_t>(count_), options_.type,
                        options_.op);
    } else {
      AllreduceOptions options;
      options.op = options_.op;
      options.name = fmt::format("sweep.{}", count_);
      allreduce(input, output, {static_cast<std::int64_t>(count_)}, options_.type, options);
    }
  }

  bool is_right(double expected, double value) const {
    if (options_.op != ReduceOp::kAverage) return value == expected;
    if (is_integer(options_.type)) return value == std::trunc(expected / size());
    // An average is rounded once in its type.
    const double average = expected / size();
    const bool is_half =
        options_.type == DataType::kBFloat16 || options_.type == DataType::kFloat16;
    return std::abs(value - average) <= (is_half ? 1.0 / 256 : 1e-6) * std::abs(average);
  }

  const SweepOptions& options_;
  const std::size_t count_;
  std::vector<std::byte> pattern_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

nlohmann::json measure(Case& subject, bool in_place, std::size_t bytes, bool check) {
  const Timing timing = subject.time(in_place);
  const double algbw = static_cast<double>(bytes) / timing.median / 1e3;
  nlohmann::json row = {{"time_us", timing.median},
                        {"p10_us", timing.low},
                        {"p90_us", timing.high},
                        {"algbw_GBps", algbw},
                        {"busbw_GBps", algbw * 2 * (size() - 1) / size()}};
  row["wrong"] = check ? nlohmann::json(subject.wrong(in_place)) : nlohmann::json(nullptr);
  return row;
}

void print_header() {
  fmt::print(
      "#                                            out-of-place                       "
      "in-place\n"
      "#       size         count      type   redop     time   algbw   busbw #wrong     "
      "time   algbw   busbw #wrong\n"
      "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            "
      "(us)  (GB/s)  (GB/s)\n");
}

std::string columns(const nlohmann::json& half) {
  const auto& wrong = half["wrong"];
  return fmt::format("{:9.2f} {:7.2f} {:7.2f} {:>6}", half["time_us"].get<double>(),
                     half["algbw_GBps"].get<double>(), half["busbw_GBps"].get<double>(),
                     wrong.is_null() ? "N/A" : std::to_string(wrong.get<std::int64_t>()));
}

}  // namespace

nlohmann::json run_sweep(const SweepOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  if (rank() == 0) print_header();
  std::size_t last = 0;
  for (double next = static_cast<double>(options.min_bytes);
       next <= static_cast<double>(options.max_bytes); next *= options.factor) {
    const std::size_t count =
        std::max<std::size_t>(1, static_cast<std::size_t>(next) / size_of(options.type));
    if (count == last) continue;
    last = count;
    const std::size_t bytes = count * size_of(options.type);
    Case subject(options, count);
    nlohmann::json row = {{"size", bytes},
                          {"count", count},
                          {"type", to_string(options.type)},
                          {"redop", to_string(options.op)}};
    row["out_of_place"] = measure(subject, false, bytes, options.check);
    row["in_place"] = measure(subject, true, bytes, options.check);
    if (rank() == 0) {
      fmt::print("{:>12} {:>13} {:>9} {:>7} {} {}\n", bytes, count, to_string(options.type),
                 to_string(options.op), columns(row["out_of_place"]), columns(row["in_place"]));
      std::fflush(stdout);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kolo::perf
