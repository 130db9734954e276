#include <kolo/torch/distributed_eval_sampler.h>
#include <kolo/torch/distributed_sampler.h>

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

}  // namespace kolo
