#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/distributed_eval_sampler.h>
#include <kolo/torch/distributed_sampler.h>
#include <kolo/torch/elastic_sampler.h>
#include <kolo/torch/objects.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr std::array kNames = {std::pair("data_size", "data size"), std::pair("seed", "seed"),
                               std::pair("shuffle", "shuffle")};

/// The values of a sampler's state that must be the same on every rank, in the order of kNames.
std::array<std::int64_t, kNames.size()> alike_in(const std::string& state) {
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  std::array<std::int64_t, kNames.size()> numbers = {};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    torch::Tensor value;
    archive.read(kNames[i].first, value, true);
    numbers[i] = value.item<std::int64_t>();
  }
  return numbers;
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t data_size,
                                       const DistributedSamplerOptions& options)
    : RankSampler(data_size, {.called = "DistributedSampler",
                              .shuffle = options.shuffle,
                              .seed = options.seed,
                              .drop_last = options.drop_last,
                              .pad = !options.drop_last && options.global_batch == 0,
                              .global_batch = options.global_batch,
                              .rank = options.rank,
                              .size = options.size}) {}

DistributedEvalSampler::DistributedEvalSampler(std::size_t data_size,
                                               const DistributedEvalSamplerOptions& options)
    : RankSampler(data_size, {.called = "DistributedEvalSampler",
                              .shuffle = options.shuffle,
                              .seed = options.seed,
                              .rank = options.rank,
                              .size = options.size}) {}

ElasticSampler::ElasticSampler(std::size_t data_size, const ElasticSamplerOptions& options)
    : RankSampler(data_size, {.called = "ElasticSampler",
                              .shuffle = options.shuffle,
                              .seed = options.seed,
                              .elastic = true,
                              .rank = options.rank,
                              .size = options.size}) {}

std::size_t ElasticSampler::remaining() const { return total_size() - position(); }

void ElasticSampler::undo_last_batch() {
  if (const std::size_t batches = batches_received(); batches > 0) set_received(batches - 1);
}

void ElasticSampler::sync(int root) {
  if (root < 0 || root >= kolo::size()) {
    raise(ErrorCode::kInvalidArgument, "ElasticSampler: sync(): the root is rank " +
                                           std::to_string(root) + "; ranks are 0 to " +
                                           std::to_string(kolo::size() - 1));
  }
  torch::serialize::OutputArchive saved;
  save(saved);
  // Every rank checks all states, so all ranks throw.
  const std::vector<std::string> all =
      allgather_bytes({.bytes = bytes_of(saved)}, {.name = "ElasticSampler.sync"});
  const std::string& state = all.at(static_cast<std::size_t>(root));
  const auto of_root = alike_in(state);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto theirs = alike_in(all[r]);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (theirs[i] == of_root[i]) continue;
      raise(ErrorCode::kMismatch,
            "ElasticSampler: sync(): rank " + std::to_string(r) + " has the " + kNames[i].second +
                " " + std::to_string(theirs[i]) + ", but rank " + std::to_string(root) + " has " +
                std::to_string(of_root[i]) + "; make the sampler alike on every rank");
    }
  }
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  load(archive);
}

}  // namespace kolo
