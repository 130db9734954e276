// kolo-kernels: compares the speed of the host's reduction kernels with the loop that a compiler
// makes of `a[i] += b[i]` for float32. Both run in turn on the same bytes. For developers of the
// kernels.
#include "runtime/device/device.h"
#include "tools/perf/numbers.h"
#include "tools/perf/report_file.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace kolo;
using Clock = std::chrono::steady_clock;

constexpr const char* kExamples = R"(examples:
  kolo-kernels                    # 16 KiB, 256 KiB and 64 MiB
  kolo-kernels 1K 1M -n 100
  kolo-kernels 256K -s 8 -J kernels.json

The report of -J is a list, one object a size: bytes, sources, samples, plain_us (the loop's), and
plain_by_kernel, by type: the loop's time divided by the kernel's.)";
constexpr double kSampleUs =
    100;  ///< a sample has so many calls that the clock's cost does not count
constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64,   DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt64,     DataType::kInt32,
                               DataType::kInt16,    DataType::kInt8,      DataType::kUInt8,
                               DataType::kBool,     DataType::kComplex64, DataType::kComplex128};

#if defined(__x86_64__)
__attribute__((target("avx512f,prefer-vector-width=512"), optimize("O3"))) void plain_512(
    float* __restrict a, const float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
}
__attribute__((target("avx2"), optimize("O3"))) void plain_256(float* __restrict a,
                                                               const float* __restrict b,
                                                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
}
#endif

__attribute__((optimize("O3"))) void plain_any(float* __restrict a, const float* __restrict b,
                                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
}

void plain(float* a, const float* b, std::size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return plain_512(a, b, count);
  if (__builtin_cpu_supports("avx2")) return plain_256(a, b, count);
#endif
  plain_any(a, b, count);
}

/// Microseconds per call, averaged over `calls` calls.
template <class Call>
double time_of(int calls, const Call& call) {
  const auto before = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(Clock::now() - before).count() / calls;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

struct Options {
  std::vector<std::size_t> bytes = {std::size_t{16} << 10, std::size_t{256} << 10,
                                    std::size_t{64} << 20};
  int samples = 30;
  std::size_t sources = 2;
  std::string json = {};  ///< path; empty: none
};

/// One row: the plain loop's time for this size, and by type how many times faster the kernels are.
nlohmann::json measure(const Options& options, std::size_t bytes) {
  // Aligned as the memory of kolo and LibTorch is.
  std::vector<Line> memory(options.sources * (bytes / sizeof(Line)));
  auto* const a = reinterpret_cast<std::byte*>(memory.data());
  std::vector<const std::byte*> sources;
  for (std::size_t k = 0; k < options.sources; ++k) sources.push_back(a + k * bytes);

  const auto plain_call = [&] {
    for (std::size_t k = 1; k < options.sources; ++k)
      plain(reinterpret_cast<float*>(a), reinterpret_cast<const float*>(sources[k]),
            bytes / sizeof(float));
  };
  const int calls = std::max(1, static_cast<int>(kSampleUs / time_of(3, plain_call)));
  std::string line;
  nlohmann::json by_type;
  std::vector<double> plain_times;
  for (const DataType type : kTypes) {
    const auto kernel_call = [&] {
      host_device().reduce(type, ReduceOp::kSum, a, sources, bytes / size_of(type), {});
    };
    std::vector<double> ratios;
    kernel_call();
    for (int sample = 0; sample < options.samples; ++sample) {
      const double of_plain = time_of(calls, plain_call);
      ratios.push_back(of_plain / time_of(calls, kernel_call));
      plain_times.push_back(of_plain);
    }
    by_type[to_string(type)] = median(ratios);
    line += fmt::format(" {:>10.2f}", median(ratios));
  }
  fmt::print("{:>9} {:>9.2f}{}\n", bytes, median(plain_times), line);
  std::fflush(stdout);
  return {{"bytes", bytes},
          {"sources", options.sources},
          {"samples", options.samples},
          {"plain_us", median(plain_times)},
          {"plain_by_kernel", std::move(by_type)}};
}

void run(const Options& options) {
  std::optional<perf::ReportFile> file;
  if (!options.json.empty()) file.emplace(options.json);
  std::string head = fmt::format("{:>9} {:>9}", "bytes", "plain us");
  for (const DataType type : kTypes) head += fmt::format(" {:>10}", to_string(type));
  fmt::print("{}\n", head);
  nlohmann::json report = nlohmann::json::array();
  for (const std::size_t bytes : options.bytes)
    report.push_back(measure(options, bytes & ~(sizeof(Line) - 1)));
  if (file) file->write(report.dump(1) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Sums arrays by kolo's kernels and by a plain float32 loop over the same bytes, in turn.\n"
      "Prints the loop's microseconds, and for each type the loop's time divided by the kernel's:\n"
      "1 is as fast as the loop, more is faster. Zeros are summed: no kernel depends on values\n"
      "other than NaN.");
  app.footer(kExamples);
  Options options;
  app.add_option("bytes", options.bytes,
                 "of each array, with a suffix K, M, G if you like (16K 256K 64M)")
      ->transform(perf::as_bytes(sizeof(Line)));
  app.add_option("-n,--samples", options.samples, "of each type and size (30)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("-s,--sources", options.sources, "arrays that are summed (2)")
      ->check(CLI::Range(2, 64));
  app.add_option("-J,--json", options.json, "write the report to this file, too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    run(options);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kolo-kernels: there is not so much memory; give smaller sizes\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-kernels: {}\n", error.what());
    return 1;
  }
  return 0;
}
