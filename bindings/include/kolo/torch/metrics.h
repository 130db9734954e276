// Numbers about all data, of which each rank has a part. (After Accelerate's gather_for_metrics and
// Horovod's metric averages.)
//
//   kolo::Meter loss("loss");
//   for (auto& batch : loader) loss.add(batch_loss(batch), batch.data.size(0));  // local
//   kolo::print("loss ", loss.total().mean());  // collective: over all samples of all ranks
//
// Functions are collective unless they are marked as local. One thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/rank_sampler.h>
#include <torch/types.h>

#include <cstdint>
#include <string>

namespace kolo {

struct GatherOptions {
  std::string name = {};  ///< as AllreduceOptions::name
};

/// Gathers the rows of every rank's `tensor` in rank order, without the rows that only pad the
/// shares. So over an epoch each element comes once.
/// - `tensor` has predictions or targets for the batch that the loop received last.
/// - The loop reads by kolo::data_loader, or by LibTorch's loader without workers. LibTorch's
///   loader with workers asks the sampler for batches ahead and does not report which one the loop
///   has received. kolo would then leave out the padding of the wrong batch.
/// - All ranks have equally many batches. A rank with fewer passes a tensor without rows instead.
/// - Throws kInvalidArgument unless the rows are those of the last batch, and kMismatch if the
///   ranks' rows differ in shape or type.
KOLO_API torch::Tensor gather_for_metrics(const torch::Tensor& tensor, const RankSampler& sampler,
                                          const GatherOptions& options = {});

/// The plain mean of every rank's value. Use a Meter where ranks have different numbers of samples.
KOLO_API double metric_average(double value, const std::string& name = {});

/// The mean over samples that arrive one by one or in batches, over all ranks together.
class KOLO_API Meter {
 public:
  /// `name` names the operation, as AllreduceOptions::name; it may be empty.
  explicit Meter(std::string name = {}) : name_(std::move(name)) {}

  /// Local: adds `count` samples whose mean is `mean`, such as a loss with reduction "mean".
  /// Throws kInvalidArgument if `count` is negative.
  void add(double mean, std::int64_t count = 1);
  /// Local: forgets all samples.
  void reset();
  double local_sum() const { return sum_; }
  std::int64_t local_count() const { return count_; }

  struct Total {
    double sum = 0;
    std::int64_t count = 0;
    /// NaN if no rank has a sample.
    double mean() const;
  };
  /// Collective: the samples that all ranks have added so far.
  Total total() const;

 private:
  std::string name_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace kolo
