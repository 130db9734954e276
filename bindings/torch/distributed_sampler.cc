#include <kolo/torch/distributed_eval_sampler.h>
#include <kolo/torch/distributed_sampler.h>
#include <kolo/torch/elastic_sampler.h>
#include <kolo/torch/objects.h>

namespace kolo {

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
  const bool is_root = kolo::rank() == root;
  Parcel parcel;
  if (is_root) {
    torch::serialize::OutputArchive archive;
    save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    parcel.bytes = std::move(stream).str();
  }
  const std::string state =
      broadcast_bytes(std::move(parcel), root, {.name = "ElasticSampler.sync"});
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size());
  load(archive);
}

}  // namespace kolo
