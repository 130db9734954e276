// DistributedEvalSampler: this rank's share of a data set that is evaluated: every element exactly
// once over all ranks, without padding, so that a metric is that of one process. Shares differ by
// one element at most, and a rank may have one batch fewer than another or none at all: gather at
// the end (Meter), not per batch. One thread at a time. With workers read by kolo::data_loader, as
// for DistributedSampler.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct DistributedEvalSamplerOptions {
  bool shuffle = false;
  std::uint64_t seed = 0;        ///< the same on every rank
  std::optional<int> rank = {};  ///< default: kolo::rank()
  std::optional<int> size = {};  ///< default: kolo::size()
};

/// total_size() is the number of elements; num_samples() differs by one between ranks.
class KOLO_API DistributedEvalSampler : public RankSampler {
 public:
  explicit DistributedEvalSampler(std::size_t data_size,
                                  const DistributedEvalSamplerOptions& options = {});
};

}  // namespace kolo
