#include "tools/perf/series.h"

#include "tools/perf/buffer.h"
#include "tools/perf/measure.h"
#include "tools/perf/pattern.h"

#include <kolo/kolo.h>

#include <cstring>

namespace kolo::perf {
namespace {

/// Operations of this size take so long that each repetition gets its own reading.
constexpr std::size_t kLongBytes = 1 << 20;
constexpr int kRepetitionsPerReading = 8;

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

  /// Microseconds of one operation.
  double time(const Variant& variant) {
    if (options_.rewrite) rewrite(variant);
    const double took = time_once([&] {
      for (int i = 0; i < options_.batch; ++i) run(variant);
    });
    return took / options_.batch;
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
  std::vector<std::vector<double>> samples(count);
  std::vector<std::int64_t> wrong(count, 0);
  std::vector<Reading> before;
  std::vector<Reading> after;
  const int block = bytes_of(problem, size()) >= kLongBytes ? 1 : kRepetitionsPerReading;
  Reading last;
  for (int i = -options.warmup; i < options.iterations; ++i) {
    if (i == 0) last = probe.read();
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t v = (static_cast<std::size_t>(i + options.warmup) + k) % count;
      const double took = bench.time(variants[v]);
      if (i < 0) continue;
      samples[v].push_back(took);
      const bool is_last = i + 1 == options.iterations;
      if (options.check && (options.rewrite || is_last)) wrong[v] += bench.check(variants[v]);
    }
    if (i < 0) continue;
    before.push_back(last);
    if ((i + 1) % block == 0 || i + 1 == options.iterations) {
      last = probe.read();
      after.resize(before.size(), last);
    }
  }
  for (auto& of_variant : samples) average_over_ranks(of_variant);
  allreduce_ordered(wrong.data(), wrong.data(), static_cast<std::int64_t>(count), DataType::kInt64,
                    ReduceOp::kSum);
  return {grouped_by_state(samples, before, after), std::move(wrong)};
}

}  // namespace kolo::perf
