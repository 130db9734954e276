// Numbers about the whole, of which each rank has a part. Collective, but for what is said to be
// local. (After Accelerate's gather_for_metrics and Horovod's metric averages.) One thread at a
// time.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/rank_sampler.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace kolo {

struct GatherOptions {
  std::string name = {};  ///< as AllreduceOptions::name
};

/// The rows of every rank's `tensor` (predictions or targets of the batch that the loop has got
/// last), by rank, without those of elements that only pad the shares: over an epoch each element
/// comes once. The loop reads by kolo::data_loader, or by LibTorch's loader without workers: with
/// workers that one asks the sampler for batches ahead and does not tell which the loop has got, so
/// that the wrong batch's padding would be left out. All ranks have as many batches, or some pass a
/// tensor without rows. Throws kInvalidArgument unless the rows are those of the last batch,
/// kMismatch if the ranks' rows differ in shape or type.
KOLO_API torch::Tensor gather_for_metrics(const torch::Tensor& tensor, const RankSampler& sampler,
                                          const GatherOptions& options = {});

/// The plain mean of every rank's value. Where ranks have other numbers of samples, use a Meter.
KOLO_API double metric_average(double value, const std::string& name = {});

/// The mean of samples that come one by one or in batches, on all ranks together.
class KOLO_API Meter {
 public:
  /// Names the operation; the empty name as AllreduceOptions::name.
  explicit Meter(std::string name = {}) : name_(std::move(name)) {}

  /// Local: `count` samples whose mean is `mean`, as a loss with the reduction "mean" is.
  void add(double mean, std::int64_t count = 1);
  /// Local: forgets all samples.
  void reset();
  double local_sum() const { return sum_; }
  std::int64_t local_count() const { return count_; }

  struct Total {
    double sum = 0;
    std::int64_t count = 0;
    /// Not a number when there was no sample on any rank.
    double mean() const;
  };
  /// What all ranks have added so far.
  Total total() const;

 private:
  std::string name_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace kolo
