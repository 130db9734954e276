#include "tools/perf/step.h"

#include "tools/perf/buffer.h"
#include "tools/perf/measure.h"
#include "tools/perf/pattern.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo::perf {
namespace {

constexpr std::size_t kBlock = (1 << 20) / sizeof(float);
/// Number of floats after which values repeat: prime, and more than --step small has.
constexpr std::size_t kPlaces = 4093;

/// `total` floats; float i is first + step * (i modulo kPlaces).
Content rising(std::size_t total, double first, double step) {
  Part part{static_cast<std::int64_t>(total),
            std::vector<std::byte>(std::min(total, kPlaces) * sizeof(float))};
  for (std::size_t at = 0; at < part.period.size(); at += sizeof(float)) {
    const auto value = static_cast<float>(first + step * static_cast<double>(at / sizeof(float)));
    std::memcpy(part.period.data() + at, &value, sizeof(float));
  }
  return {part};
}

/// A gradient's memory, as floats.
class Gradient {
 public:
  Gradient(std::size_t count, Memory memory, Gpu* gpu)
      : buffer_(count * sizeof(float), memory, gpu) {}
  /// The memory that is measured.
  float* place() const { return reinterpret_cast<float*>(buffer_.place()); }
  std::size_t size() const { return buffer_.size() / sizeof(float); }

  /// The host's memory, with the same number of bytes.
  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return buffer_.size(); }
  void push() const { buffer_.push(); }
  void pull() const { buffer_.pull(); }

 private:
  Buffer buffer_;
};

/// What is measured. Every gradient has its own memory, as in an optimizer.
class Step {
 public:
  Step(std::vector<std::int64_t> counts, Memory memory, Gpu* gpu)
      : counts_(std::move(counts)), gpu_(gpu), block_(kBlock, memory, gpu) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      gradients_.emplace_back(static_cast<std::size_t>(counts_[i]), memory, gpu);
      names_.push_back(fmt::format("gradient.{}", i));
      total_ += static_cast<std::size_t>(counts_[i]);
    }
    contiguous_ = std::make_unique<Gradient>(total_, memory, gpu);
    // Rank r has 1 + r, 2 + r, … in the contiguous memory and across the gradients: whole numbers,
    // whose sums are exact for up to 2,900 ranks.
    const double ranks = kolo::size();
    input_ = rising(total_, 1 + rank(), 1);
    sum_ = rising(total_, ranks + ranks * (ranks - 1) / 2, ranks);
  }

  std::size_t total() const { return total_; }
  std::size_t tensors() const { return counts_.size(); }

  /// Uses the host's contiguous memory.
  void refill_gradients() {
    write(input_, DataType::kFloat32, contiguous_->data());
    const std::byte* from = contiguous_->data();
    for (const auto& gradient : gradients_) {
      std::memcpy(gradient.data(), from, gradient.bytes());
      from += gradient.bytes();
      gradient.push();
    }
  }
  void refill_contiguous() {
    write(input_, DataType::kFloat32, contiguous_->data());
    contiguous_->push();
  }

  /// As the optimizer does: submits all, then waits for all; on a GPU through its stream.
  void all_gradients() {
    std::vector<std::shared_ptr<Work>> works;
    works.reserve(gradients_.size());
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      works.push_back(allreduce_async(gradients_[i].place(), gradients_[i].place(), {counts_[i]},
                                      DataType::kFloat32, options_of(names_[i])));
    }
    for (const auto& work : works) {
      synchronize(*work);
      if (gpu_ == nullptr) continue;
      const Status ordered = work->order(gpu_->stream());
      if (!ordered.ok()) throw std::runtime_error(ordered.error().message);
    }
    if (gpu_ != nullptr) gpu_->synchronize();
  }

  /// In-order submission; on a GPU, whose memory in-order submission does not take, negotiated
  /// submission.
  void raw() {
    float* const data = contiguous_->place();
    const auto count = static_cast<std::int64_t>(total_);
    if (gpu_ == nullptr)
      return allreduce_ordered(data, data, count, DataType::kFloat32, ReduceOp::kSum);
    allreduce(data, data, {count}, DataType::kFloat32, options_of("contiguous"));
    gpu_->synchronize();
  }

  /// As raw(), by a peer that has been prepared for problem().
  void raw(Engine& peer) {
    auto* const data = reinterpret_cast<std::byte*>(contiguous_->place());
    peer.run(problem(), data, data, true);
  }
  Problem problem() const { return {.count = static_cast<std::int64_t>(total_)}; }

  /// Copies all gradients through one block, in and out again; on a GPU with driver copies.
  void pack_and_unpack() {
    std::size_t filled = 0;
    std::vector<std::pair<float*, std::size_t>> pieces;
    const auto unpack = [&] {
      const float* from = block_.place();
      for (const auto& [data, count] : pieces) {
        copy(data, from, count);
        from += count;
      }
      pieces.clear();
      filled = 0;
    };
    for (auto& gradient : gradients_) {
      for (std::size_t offset = 0; offset < gradient.size();) {
        const std::size_t count = std::min(gradient.size() - offset, kBlock - filled);
        copy(block_.place() + filled, gradient.place() + offset, count);
        pieces.emplace_back(gradient.place() + offset, count);
        filled += count;
        offset += count;
        if (filled == kBlock) unpack();
      }
    }
    unpack();
    if (gpu_ != nullptr) gpu_->synchronize();
  }

  /// Wrong elements of all_gradients() on this rank. Uses the host's contiguous memory.
  std::int64_t wrong_gradients() {
    std::byte* to = contiguous_->data();
    for (const auto& gradient : gradients_) {
      gradient.pull();
      std::memcpy(to, gradient.data(), gradient.bytes());
      to += gradient.bytes();
    }
    return count_wrong(problem(), sum_, contiguous_->data());
  }
  /// Wrong elements of raw() on this rank.
  std::int64_t wrong_contiguous() {
    contiguous_->pull();
    return count_wrong(problem(), sum_, contiguous_->data());
  }

 private:
  AllreduceOptions options_of(const std::string& name) const {
    AllreduceOptions options;
    options.name = name;
    if (gpu_ != nullptr) options.stream = gpu_->stream();
    return options;
  }
  void copy(float* destination, const float* source, std::size_t count) const {
    if (gpu_ == nullptr) {
      std::memcpy(destination, source, count * sizeof(float));
    } else {
      gpu_->copy(destination, source, count * sizeof(float));
    }
  }

  const std::vector<std::int64_t> counts_;
  Gpu* const gpu_;
  const Gradient block_;
  std::vector<Gradient> gradients_;
  std::vector<std::string> names_;
  std::unique_ptr<Gradient> contiguous_;
  std::size_t total_ = 0;
  Content input_;
  Content sum_;
};

/// Rank 0's row for one part.
void print_row(std::string_view what, const Statistics& timing) {
  fmt::print("{:<41} {:9.3f} ms  ({:.3f} to {:.3f})\n", what, timing.p50 / 1e3, timing.p10 / 1e3,
             timing.p90 / 1e3);
}

void print_ratio(std::string_view what, const Statistics& ratio) {
  fmt::print("{:<41} {:9.3f}     ({:.3f} to {:.3f})\n", what, ratio.p50, ratio.p10, ratio.p90);
}

}  // namespace

std::vector<std::int64_t> resnet50_gradients() {
  std::vector<std::int64_t> counts;
  const auto convolution = [&](std::int64_t out, std::int64_t in, std::int64_t kernel) {
    counts.push_back(out * in * kernel * kernel);
    counts.push_back(out);  // its batch norm
    counts.push_back(out);
  };
  convolution(64, 3, 7);
  std::int64_t in = 64;
  std::int64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(width, in, 1);
      convolution(width, width, 3);
      convolution(4 * width, width, 1);
      if (block == 0) convolution(4 * width, in, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  counts.push_back(1000 * in);
  counts.push_back(1000);
  std::reverse(counts.begin(), counts.end());
  return counts;
}

nlohmann::json run_step(const StepOptions& options,
                        const std::vector<std::unique_ptr<Engine>>& peers) {
  const bool is_small = options.name == "small";
  Step step(is_small ? std::vector<std::int64_t>(1000, 4) : resnet50_gradients(), options.memory,
            options.gpu);
  for (const auto& peer : peers) peer->prepare(step.problem());
  std::vector<double> whole;
  std::vector<double> raw;
  std::vector<double> pack;
  std::vector<std::vector<double>> by_peer(peers.size());
  // kolo's, then each peer's.
  std::vector<std::int64_t> wrong(1 + peers.size(), 0);
  for (int i = 0; i < options.warmup + options.iterations; ++i) {
    step.refill_gradients();
    const double a = time_once([&] { step.all_gradients(); });
    wrong[0] += step.wrong_gradients();
    step.refill_contiguous();
    const double b = time_once([&] { step.raw(); });
    wrong[0] += step.wrong_contiguous();
    const double c = time_once([&] { step.pack_and_unpack(); });
    for (std::size_t k = 0; k < peers.size(); ++k) {
      step.refill_contiguous();
      const double took = time_once([&] { step.raw(*peers[k]); });
      wrong[1 + k] += step.wrong_contiguous();
      if (i >= options.warmup) by_peer[k].push_back(took);
    }
    if (i < options.warmup) continue;
    whole.push_back(a);
    raw.push_back(b);
    pack.push_back(c);
  }
  for (std::vector<double>* samples : {&whole, &raw, &pack}) average_over_ranks(*samples);
  for (std::vector<double>& samples : by_peer) average_over_ranks(samples);
  allreduce_ordered(wrong.data(), wrong.data(), static_cast<std::int64_t>(wrong.size()),
                    DataType::kInt64, ReduceOp::kSum);
  const auto ratio_to_parts = [&](std::vector<double> parts) {
    std::transform(parts.begin(), parts.end(), pack.begin(), parts.begin(), std::plus<>());
    return ratios(whole, parts);
  };
  const Statistics to_raw = ratios(whole, raw);
  const Statistics to_parts = ratio_to_parts(raw);
  if (rank() == 0) {
    fmt::print("# {}: {} gradients, {} floats, {} ranks, {} wrong; median (10 % to 90 %)\n",
               is_small ? "small" : "ResNet-50", step.tensors(), step.total(), size(), wrong[0]);
    print_row("step: all gradients, named", statistics_of(whole));
    print_row("raw: the same bytes in one piece", statistics_of(raw));
    print_row("pack and unpack by blocks of 1 MiB", statistics_of(pack));
    print_ratio("step / raw", to_raw);
    print_ratio("step / (raw + pack and unpack)", to_parts);
  }
  nlohmann::json of_peers = nlohmann::json::array();
  for (std::size_t k = 0; k < peers.size(); ++k) {
    const Statistics ratio = ratio_to_parts(by_peer[k]);
    if (rank() == 0) {
      print_row(fmt::format("raw by {}, {} wrong", peers[k]->name(), wrong[1 + k]),
                statistics_of(by_peer[k]));
      print_ratio(fmt::format("step / (raw by {} + pack and unpack)", peers[k]->name()), ratio);
    }
    of_peers.push_back({{"peer", peers[k]->name()},
                        {"wrong", wrong[1 + k]},
                        {"raw", to_json(statistics_of(by_peer[k]))},
                        {"ratio", ratio.p50}});
  }
  return {{"name", options.name},
          {"tensors", step.tensors()},
          {"elements", step.total()},
          {"wrong", std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0})},
          {"step", to_json(statistics_of(whole))},
          {"raw", to_json(statistics_of(raw))},
          {"pack_unpack", to_json(statistics_of(pack))},
          {"ratio_to_raw", to_raw.p50},
          {"ratio", to_parts.p50},
          {"peers", of_peers}};
}

}  // namespace kolo::perf
