// DistributedEvalSampler: this rank's share of a data set for evaluation. Over all ranks it gives
// every element exactly once, without padding, so a metric equals that of one process. One thread
// at a time.
//
//   kolo::DistributedEvalSampler sampler(data.size().value());
//   auto loader = kolo::data_loader(data, sampler, {.batch_size = 64});
//   kolo::Meter accuracy("accuracy");
//   for (auto& batch : loader) accuracy.add(accuracy_of(batch), batch.data.size(0));
//   kolo::print("accuracy ", accuracy.total().mean());
//
// - Shares differ by at most one element. A rank may have one batch fewer than another rank, or no
//   batch. So combine the results at the end (Meter), not in each batch.
// - With workers, use kolo::data_loader, as for DistributedSampler.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct DistributedEvalSamplerOptions {
  bool shuffle = false;
  std::uint64_t seed = 0;        ///< equal on every rank
  std::optional<int> rank = {};  ///< default: kolo::rank()
  std::optional<int> size = {};  ///< default: kolo::size()
};

/// total_size() is the number of elements. num_samples() differs by at most one between ranks.
class KOLO_API DistributedEvalSampler : public RankSampler {
 public:
  explicit DistributedEvalSampler(std::size_t data_size,
                                  const DistributedEvalSamplerOptions& options = {});
};

}  // namespace kolo
