#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/distributed_eval_sampler.h>
#include <kolo/torch/distributed_sampler.h>
#include <kolo/torch/elastic_sampler.h>
#include <kolo/torch/objects.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Of a sampler's state.
std::uint64_t number_in(const std::string& state, const char* key) {
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  torch::Tensor value;
  archive.read(key, value, true);
  return static_cast<std::uint64_t>(value.item<std::int64_t>());
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
  torch::serialize::OutputArchive saved;
  save(saved);
  std::ostringstream stream;
  saved.save_to(stream);
  const std::string mine = std::move(stream).str();
  const std::string state = broadcast_bytes({.bytes = mine}, root, {.name = "ElasticSampler.sync"});
  // Every rank looks at all, so that all throw.
  const std::vector<std::string> all =
      allgather_bytes({.bytes = mine}, {.name = "ElasticSampler.sync/all"});
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (const auto& [key, what] :
         {std::pair("data_size", "data size"), {"seed", "seed"}, {"shuffle", "shuffle"}}) {
      const std::uint64_t value = number_in(all[r], key);
      const std::uint64_t of_root = number_in(state, key);
      if (value == of_root) continue;
      raise(ErrorCode::kMismatch,
            "ElasticSampler: sync(): rank " + std::to_string(r) + " has the " + what + " " +
                std::to_string(value) + ", but rank " + std::to_string(root) + " has " +
                std::to_string(of_root) + "; make the sampler alike on every rank");
    }
  }
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  load(archive);
}

}  // namespace kolo
