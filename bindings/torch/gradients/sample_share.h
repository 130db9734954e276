// The weight of a rank's gradients in an average over ranks with different numbers of samples, for
// DistributedDataParallel with weigh_by_samples. The training loop calls tell(). A pass calls
// agree() first, on the thread that brings the first gradient. Private to bindings/torch.
#pragma once

#include <kolo/torch/tensor_work.h>

#include <cstdint>
#include <optional>
#include <string>

namespace kolo {

class SampleShare {
 public:
  SampleShare() = default;
  ~SampleShare() { sum_.drain(); }
  SampleShare(const SampleShare&) = delete;
  SampleShare& operator=(const SampleShare&) = delete;

  /// Sets the number of samples of the next pass and starts to share it, so all ranks must call it.
  /// The last call counts. Throws kInvalidArgument for a negative number.
  void tell(const std::string& prefix, std::int64_t samples);
  /// Computes the weight of this rank's gradients in this pass, so that their average over the
  /// ranks is the average over all samples. Throws kInvalidArgument on every rank if one has not
  /// told its samples, or if all have none.
  void agree(const std::string& prefix);
  /// Multiplies the tensor by the weight.
  void weigh(const torch::Tensor& gradients) const;

 private:
  std::optional<std::int64_t> samples_;  ///< samples of the next pass, once told
  TensorWork sum_;                       ///< sum over all ranks, under way
  double weight_ = 1;                    ///< for this pass
};

}  // namespace kolo
