#include "tools/perf/series.h"

#include "tools/perf/buffer.h"
#include "tools/perf/measure.h"
#include "tools/perf/pattern.h"

#include <kolo/kolo.h>

#include <algorithm>
#include <cstring>

namespace kolo::perf {
namespace {

/// Operations of this size take so long that each repetition gets its own reading.
constexpr std::size_t kLongBytes = 16 << 20;
/// Repetitions of an engine in a row: as many untimed as timed ones. A program calls one library
/// over and over, and then finds that library's memory in the caches.
constexpr int kTurn = 8;

/// The memory of one problem, and the work around an operation.
class Bench {
 public:
  Bench(const Problem& problem, const SeriesOptions& options)
      : problem_(problem),
        options_(options),
        content_(input_of(problem, rank(), size())),
        expected_(expected_of(problem, rank(), size())),
        input_(bytes(input_count(problem, rank(), size())), options.memory, options.gpu),
        // A broadcast's root has its input in the output buffer.
        output_(bytes(output_count(problem, rank(), size())), options.memory, options.gpu),
        place_(bytes(place_in_output(problem, rank()).value_or(0))) {}

  /// A batch of operations, which all ranks begin together.
  Span time(const Variant& variant) {
    if (options_.rewrite) rewrite(variant);
    if (options_.barrier != nullptr) {
      options_.barrier->wait();
    } else {
      align();
    }
    return span_of([&] {
      for (int i = 0; i < options_.batch; ++i) run(variant);
    });
  }

  /// Wrong elements on this rank. Repeats the operation if the last result is not what the patterns
  /// say any more: after a batch, or without rewriting.
  std::int64_t check(const Variant& variant) {
    if (!options_.rewrite || options_.batch > 1) {
      rewrite(variant);
      run(variant);
    }
    output_.pull();
    return count_wrong(problem_, expected_, output_.data());
  }

 private:
  std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count) * size_of(problem_.type);
  }

  void rewrite(const Variant& variant) {
    // Overwrite the output, so that an earlier result cannot pass for this one.
    std::memset(output_.data(), 0xA5, output_.size());
    write(content_, problem_.type, host_input_at(variant));
    input_.push();
    output_.push();
  }

  std::byte* host_input_at(const Variant& variant) {
    if (!variant.in_place) return input_.data();
    return output_.data() + place_;
  }
  std::byte* input_at(const Variant& variant) {
    const bool in_place = variant.in_place;
    return (in_place ? output_.place() : input_.place()) +
           (host_input_at(variant) - (in_place ? output_.data() : input_.data()));
  }

  void run(const Variant& variant) {
    variant.engine->run(problem_, input_at(variant), output_.place(), variant.in_place);
  }

  const Problem& problem_;
  const SeriesOptions& options_;
  const Content content_;
  const Content expected_;
  Buffer input_;
  Buffer output_;
  const std::size_t place_;  ///< offset of the input in the output, in place
};

}  // namespace

Series run_series(const Problem& problem, const std::vector<Variant>& variants,
                  const SeriesOptions& options, Probe& probe) {
  Bench bench(problem, options);
  for (const Variant& variant : variants) variant.engine->prepare(problem);
  const std::size_t count = variants.size();
  std::vector<std::vector<Span>> spans(count);
  std::vector<std::int64_t> wrong(count, 0);
  const bool is_long = bytes_of(problem, size()) >= kLongBytes;
  const auto repeat = [&](std::size_t v, int from, int to) {
    variants[v].engine->begin_turn();
    for (int i = 0; i < kTurn && !is_long; ++i) bench.time(variants[v]);
    for (int i = from; i < to; ++i) {
      spans[v].push_back(bench.time(variants[v]));
      const bool is_last = i + 1 == options.iterations;
      if (options.check && (options.rewrite || is_last)) wrong[v] += bench.check(variants[v]);
    }
  };
  for (int i = 0; i < options.warmup; ++i) {
    for (const Variant& variant : variants) {
      variant.engine->begin_turn();
      bench.time(variant);
    }
  }
  std::vector<Reading> before;
  std::vector<Reading> after;
  const int turn = is_long ? 1 : kTurn;
  Reading last = probe.read();
  for (int first = 0; first < options.iterations; first += turn) {
    const int end = std::min(first + turn, options.iterations);
    for (std::size_t k = 0; k < count; ++k)
      repeat((static_cast<std::size_t>(first / turn) + k) % count, first, end);
    before.resize(static_cast<std::size_t>(end), last);
    last = probe.read();
    after.resize(static_cast<std::size_t>(end), last);
  }
  std::vector<std::vector<double>> samples;
  for (const std::vector<Span>& of_variant : spans) {
    samples.push_back(options.protocol == Protocol::kHarness
                          ? from_last_begin_to_last_end(of_variant)
                          : means_over_ranks(of_variant));
    for (double& sample : samples.back()) sample /= options.batch;
  }
  allreduce_ordered(wrong.data(), wrong.data(), static_cast<std::int64_t>(count), DataType::kInt64,
                    ReduceOp::kSum);
  return {grouped_by_state(samples, before, after), std::move(wrong)};
}

}  // namespace kolo::perf
