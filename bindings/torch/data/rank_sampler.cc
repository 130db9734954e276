// Deals a data set out to the ranks and tracks the position in an epoch. Called by the training
// loop's thread, also when LibTorch's loader asks for batches ahead.
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/rank_sampler.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace kolo {

struct RankSampler::State {
  std::size_t data_size = 0;
  RankSamplerOptions options;
  std::size_t rank = 0;
  std::size_t size = 1;
  std::size_t epoch = 0;
  std::size_t dealt_epoch = 0;           ///< epoch of `indices`
  std::vector<std::size_t> indices;      ///< share of this rank in the epoch
  std::size_t base = 0;                  ///< start of `indices` in the permutation, if elastic
  std::size_t dealt_from = 0;            ///< argument of the last deal()
  std::size_t start = 0;                 ///< start of this pass over `indices`
  std::vector<std::size_t> ends;         ///< ends in `indices` of the batches that next() gave
  std::vector<std::size_t> asked;        ///< see asked_for()
  std::optional<std::size_t> received;   ///< see set_received()
  std::optional<std::size_t> last;       ///< like received, but without batches dropped at the end
  std::optional<std::size_t> resume_at;  ///< start of the next pass
  bool chosen = true;                    ///< see epoch_is_chosen()

  std::size_t total_size() const {
    if (const std::size_t batch = options.global_batch; batch > 0) {
      return options.drop_last ? data_size / batch * batch : data_size;
    }
    if (options.drop_last) return data_size / size * size;
    return options.pad ? (data_size + size - 1) / size * size : data_size;
  }

  /// This rank's part of `count` elements that are dealt out one by one.
  std::size_t share_of(std::size_t count) const { return (count + size - 1 - rank) / size; }

  std::size_t num_samples() const {
    const std::size_t total = total_size() - base;
    if (options.global_batch == 0) return share_of(total);
    return total / options.global_batch * share_of(options.global_batch) +
           share_of(total % options.global_batch);
  }

  /// Number of batches in `count` elements of this share.
  std::size_t batches_of(std::size_t count, std::size_t batch_size, bool drop_last) const {
    if (options.global_batch > 0) batch_size = share_of(options.global_batch);
    if (batch_size == 0) {
      raise(ErrorCode::kInvalidArgument,
            std::string(options.called) + ": batches of 0 elements cannot be counted");
    }
    return (drop_last ? count : count + batch_size - 1) / batch_size;
  }

  std::vector<std::size_t> permutation() const {
    std::vector<std::size_t> order(data_size);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!options.shuffle) return order;
    // An explicit Fisher-Yates shuffle: std::shuffle may differ between libraries, and ranks must
    // agree.
    std::seed_seq seeds{
        static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32),
        static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(std::uint64_t{epoch} >> 32)};
    std::mt19937_64 random(seeds);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    return order;
  }

  /// Deals elements from `first_of_pass` on: an index in this share, or in the permutation if
  /// elastic.
  void deal(std::size_t first_of_pass) {
    const std::vector<std::size_t> order = permutation();
    dealt_from = first_of_pass;
    if (options.elastic) {
      if (!options.rank) rank = static_cast<std::size_t>(kolo::rank());
      if (!options.size) size = static_cast<std::size_t>(kolo::size());
      base = std::min(first_of_pass, data_size);
      first_of_pass = 0;
    }
    const std::size_t total = total_size();
    const std::size_t stretch = options.global_batch > 0 ? options.global_batch : total;
    indices.clear();
    indices.reserve(num_samples());
    for (std::size_t first = base; first < total; first += stretch) {
      const std::size_t end = std::min(first + stretch, total);
      // Only padding exceeds the permutation, and wraps around.
      for (std::size_t i = first + rank; i < end; i += size) {
        indices.push_back(order[i % order.size()]);
      }
    }
    dealt_epoch = epoch;
    start = std::min(first_of_pass, indices.size());
    ends.clear();
    asked.clear();
    received.reset();
    last.reset();
    resume_at.reset();
  }

  std::size_t given() const { return ends.empty() ? start : ends.back(); }
  std::size_t batches_received() const { return received.value_or(ends.size()); }
  /// The last batch that the loop has got, counted from 1; 0 before the first.
  std::size_t last_batch() const {
    std::size_t batch = last.value_or(ends.size());
    // A last batch counts even if only other ranks have elements of it.
    if (batch > 1 && end_of(batch) == end_of(batch - 1)) --batch;
    return batch;
  }
  /// The end of batch number `count` in this share.
  std::size_t end_of(std::size_t count) const { return count == 0 ? start : ends[count - 1]; }

  /// Where batch number `count` would end in a share of unlimited length.
  std::size_t asked_for(std::size_t count) const {
    if (count > 0) return asked[count - 1];
    return options.elastic ? 0 : dealt_from;
  }
  /// Where batch number `count` of all ranks ends in the permutation. It follows from the requested
  /// sizes, which are the same on every rank; the ends of the shares differ.
  std::size_t end_of_all(std::size_t count) const {
    const std::size_t mine = asked_for(count);
    const std::size_t batch = options.global_batch;
    if (batch == 0) return base + mine * size;
    return (mine + share_of(batch) - 1) / share_of(batch) * batch;
  }
  /// Where this rank's share goes on behind a position of all ranks.
  std::size_t start_behind(std::size_t all) const {
    if (options.global_batch > 0)
      return all / options.global_batch * share_of(options.global_batch);
    return options.elastic ? all : all / size;
  }
  /// Position of all ranks, derived from this rank's position.
  std::size_t position() const {
    const std::size_t total = total_size();
    if (epoch != dealt_epoch || total == 0) return 0;
    const std::size_t end = end_of_all(batches_received());
    return end < total ? end : data_size;  // all of the data set, whatever number of ranks
                                           // continues
  }
};

namespace {

void check_share(const RankSamplerOptions& options, int rank, int size) {
  const std::string called = options.called;
  if (size < 1 || rank < 0 || rank >= size) {
    raise(ErrorCode::kInvalidArgument, called + ": rank " + std::to_string(rank) + " of " +
                                           std::to_string(size) + " ranks does not exist");
  }
  if (options.global_batch > 0 && options.global_batch < static_cast<std::size_t>(size)) {
    raise(ErrorCode::kInvalidArgument,
          called + ": a global batch of " + std::to_string(options.global_batch) +
              " leaves some of " + std::to_string(size) + " ranks without an element");
  }
}

}  // namespace

RankSampler::RankSampler(std::size_t data_size, const RankSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  if (!options.size || !options.rank) check_initialized(options.called);
  const int size = options.size ? *options.size : kolo::size();
  const int rank = options.rank ? *options.rank : kolo::rank();
  check_share(options, rank, size);
  state_->data_size = data_size;
  state_->options = options;
  state_->rank = static_cast<std::size_t>(rank);
  state_->size = static_cast<std::size_t>(size);
  state_->deal(0);
  const std::size_t last = options.global_batch > 0 ? total_size() % options.global_batch : 0;
  if (rank == 0 && last > 0 && last < state_->size) {
    TORCH_WARN("kolo: ", options.called, ": the last global batch of an epoch has ", last,
               " elements for ", size,
               " ranks, so some make one step less; set drop_last, train within kolo::Join, "
               "or see global_batch in kolo/torch/distributed_sampler.h");
  }
}

void RankSampler::set_epoch(std::size_t epoch) {
  if (epoch != state_->epoch) state_->resume_at.reset();
  state_->epoch = epoch;
  state_->chosen = true;
}

std::size_t RankSampler::epoch() const { return state_->epoch; }
bool RankSampler::epoch_is_chosen() const { return state_->chosen; }
std::size_t RankSampler::total_size() const { return state_->total_size(); }
std::size_t RankSampler::num_samples() const { return state_->num_samples(); }
std::size_t RankSampler::batches_received() const { return state_->batches_received(); }
std::size_t RankSampler::position() const { return state_->position(); }
std::size_t RankSampler::global_batch() const { return state_->options.global_batch; }
std::size_t RankSampler::num_global_batches() const {
  return global_batch() == 0 ? 0 : (total_size() + global_batch() - 1) / global_batch();
}

std::size_t RankSampler::num_batches(std::size_t batch_size, bool drop_last) const {
  return state_->batches_of(state_->num_samples(), batch_size, drop_last);
}

std::size_t RankSampler::num_batches_of_pass(std::size_t batch_size, bool drop_last) const {
  return state_->batches_of(state_->indices.size() - state_->start, batch_size, drop_last);
}

void RankSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && *new_size != state_->data_size) {
    state_->data_size = *new_size;
    state_->resume_at.reset();
  }
  state_->deal(state_->resume_at.value_or(0));
  state_->chosen = false;
}

void RankSampler::undo_reset() {
  set_received(0);
  state_->resume_at = state_->dealt_from;
  state_->chosen = true;
}

std::optional<std::vector<std::size_t>> RankSampler::next(std::size_t batch_size) {
  State& state = *state_;
  const std::size_t global_batch = state.options.global_batch;
  // Checked against the smallest share, so that all ranks throw.
  if (global_batch > 0 && batch_size > 1 && batch_size > global_batch / state.size) {
    raise(ErrorCode::kInvalidArgument,
          std::string(state.options.called) + ": asked for " + std::to_string(batch_size) +
              " elements, but a rank's share of a global batch of " + std::to_string(global_batch) +
              " is " + std::to_string(global_batch / state.size) +
              "; leave batch_size at 1 for this share");
  }
  const std::size_t wanted = global_batch > 0 ? state.share_of(global_batch) : batch_size;
  const std::size_t first = state.given();
  const std::size_t count = std::min(wanted, state.indices.size() - first);
  // If another rank has one more last element, its batch counts here, too.
  const std::size_t batches = state.ends.size();
  const bool others_have_more = wanted > 0 && state.end_of_all(batches) < state.total_size();
  if (count == 0 && !others_have_more) return std::nullopt;
  state.ends.push_back(first + count);
  state.asked.push_back(state.asked_for(batches) + wanted);
  if (count == 0) return std::nullopt;
  const auto begin = state.indices.begin() + static_cast<std::ptrdiff_t>(first);
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void RankSampler::set_received(std::size_t batches) {
  const std::size_t given = state_->ends.size();
  state_->received = std::min(batches, given);
  state_->last = batches <= given ? batches : state_->last.value_or(0);
}

std::size_t RankSampler::last_batch_size() const {
  const State& state = *state_;
  const std::size_t batch = state.last_batch();
  return batch == 0 ? 0 : state.end_of(batch) - state.end_of(batch - 1);
}

std::size_t RankSampler::last_batch_padding() const {
  const State& state = *state_;
  const std::size_t batch = state.last_batch();
  if (!state.options.pad || batch == 0) return 0;
  // There are fewer padding elements than ranks, so at most the last element of this share is one.
  const std::size_t last = state.end_of(batch) - 1;
  return state.rank + last * state.size >= state.data_size ? 1 : 0;
}

void RankSampler::save(torch::serialize::OutputArchive& archive) const {
  const State& state = *state_;
  const auto write = [&](const char* key, std::uint64_t value) {
    archive.write(key, torch::tensor(static_cast<std::int64_t>(value)), true);
  };
  write("epoch", state.epoch);
  write("position", state.position());
  write("data_size", state.data_size);
  write("seed", state.options.seed);
  write("shuffle", state.options.shuffle ? 1 : 0);
}

void RankSampler::load(torch::serialize::InputArchive& archive) {
  State& state = *state_;
  const auto read = [&](const char* key) {
    torch::Tensor value;
    archive.read(key, value, true);
    return static_cast<std::uint64_t>(value.item<std::int64_t>());
  };
  const auto require = [&](const char* key, const char* what, std::uint64_t mine) {
    if (const std::uint64_t saved = read(key); saved != mine) {
      raise(ErrorCode::kMismatch, std::string(state.options.called) +
                                      ": the state is from the middle of an epoch with the " +
                                      what + " " + std::to_string(saved) +
                                      ", but this sampler's is " + std::to_string(mine) +
                                      "; go on with the former");
    }
  };
  const std::size_t position = read("position");
  const bool ended = !state.options.elastic && position > 0 && position >= read("data_size");
  if (position > 0 && !ended) {
    require("data_size", "data size", state.data_size);
    require("seed", "seed", state.options.seed);
    torch::Tensor shuffle;  // older states lack it
    if (archive.try_read("shuffle", shuffle, true)) {
      require("shuffle", "shuffle", state.options.shuffle ? 1 : 0);
    }
  }
  resume(read("epoch"), ended ? state.data_size : position);
}

void RankSampler::resume(std::size_t epoch, std::size_t position) {
  State& state = *state_;
  const int rank = state.options.rank ? *state.options.rank : kolo::rank();
  const int size = state.options.size ? *state.options.size : kolo::size();
  check_share(state.options, rank, size);
  state.rank = static_cast<std::size_t>(rank);
  state.size = static_cast<std::size_t>(size);
  state.epoch = epoch;
  // A share is never larger than the data.
  const bool ended = !state.options.elastic && position > 0 && position >= state.data_size;
  const std::size_t first = ended ? state.data_size : state.start_behind(position);
  state.deal(first);
  state.resume_at = first;
  state.chosen = true;
}

}  // namespace kolo
