#include "bindings/torch/tensor_memory.h"

#include <kolo/kolo.h>
#include <kolo/torch/distributed_sampler.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace kolo {

struct DistributedSampler::State {
  std::size_t data_size = 0;
  DistributedSamplerOptions options;
  std::size_t rank = 0;
  std::size_t size = 1;
  std::size_t epoch = 0;
  std::size_t position = 0;
  std::vector<std::size_t> indices;  ///< this rank's share of the epoch

  std::size_t total_size() const {
    if (const std::size_t batch = options.global_batch; batch > 0) {
      return options.drop_last ? data_size / batch * batch : data_size;
    }
    return (options.drop_last ? data_size : data_size + size - 1) / size * size;
  }

  /// Of `count` elements that are dealt out one by one.
  std::size_t share_of(std::size_t count) const { return (count + size - 1 - rank) / size; }

  std::size_t num_samples() const {
    const std::size_t total = total_size();
    if (options.global_batch == 0) return total / size;
    return total / options.global_batch * share_of(options.global_batch) +
           share_of(total % options.global_batch);
  }

  std::vector<std::size_t> permutation() const {
    std::vector<std::size_t> order(data_size);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!options.shuffle) return order;
    // Fisher and Yates by hand: std::shuffle may differ from one library to another, and ranks must
    // agree.
    std::seed_seq seeds{
        static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32),
        static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(std::uint64_t{epoch} >> 32)};
    std::mt19937_64 random(seeds);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    return order;
  }

  void deal() {
    const std::vector<std::size_t> order = permutation();
    const std::size_t total = total_size();
    const std::size_t stretch = options.global_batch > 0 ? options.global_batch : total;
    position = 0;
    indices.clear();
    indices.reserve(num_samples());
    for (std::size_t first = 0; first < total; first += stretch) {
      const std::size_t end = std::min(first + stretch, total);
      // Only padding goes beyond the permutation, and wraps.
      for (std::size_t i = first + rank; i < end; i += size) {
        indices.push_back(order[i % order.size()]);
      }
    }
  }
};

DistributedSampler::DistributedSampler(std::size_t data_size,
                                       const DistributedSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  const int size = options.size ? *options.size : kolo::size();
  const int rank = options.rank ? *options.rank : kolo::rank();
  if (size < 1 || rank < 0 || rank >= size) {
    raise(ErrorCode::kInvalidArgument, "DistributedSampler: rank " + std::to_string(rank) + " of " +
                                           std::to_string(size) + " ranks does not exist");
  }
  if (options.global_batch > 0 && options.global_batch < static_cast<std::size_t>(size)) {
    raise(ErrorCode::kInvalidArgument,
          "DistributedSampler: a global batch of " + std::to_string(options.global_batch) +
              " leaves some of " + std::to_string(size) + " ranks without an element");
  }
  state_->data_size = data_size;
  state_->options = options;
  state_->rank = static_cast<std::size_t>(rank);
  state_->size = static_cast<std::size_t>(size);
  state_->deal();
}

void DistributedSampler::set_epoch(std::size_t epoch) { state_->epoch = epoch; }
std::size_t DistributedSampler::epoch() const { return state_->epoch; }
std::size_t DistributedSampler::total_size() const { return state_->total_size(); }
std::size_t DistributedSampler::num_samples() const { return state_->num_samples(); }

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) state_->data_size = *new_size;
  state_->deal();
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  State& state = *state_;
  const std::size_t global_batch = state.options.global_batch;
  const std::size_t wanted = global_batch > 0 ? state.share_of(global_batch) : batch_size;
  const std::size_t count = std::min(wanted, state.indices.size() - state.position);
  if (count == 0) return std::nullopt;
  const auto begin = state.indices.begin() + static_cast<std::ptrdiff_t>(state.position);
  state.position += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(static_cast<std::int64_t>(state_->epoch)), true);
  archive.write("position", torch::tensor(static_cast<std::int64_t>(state_->position)), true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch;
  torch::Tensor position;
  archive.read("epoch", epoch, true);
  archive.read("position", position, true);
  state_->epoch = static_cast<std::size_t>(epoch.item<std::int64_t>());
  state_->deal();
  state_->position =
      std::min(static_cast<std::size_t>(position.item<std::int64_t>()), state_->indices.size());
}

}  // namespace kolo
