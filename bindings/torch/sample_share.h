// What a rank's gradients weigh in an average over ranks that have different numbers of samples:
// for DistributedDataParallel with weigh_by_samples. tell() is the training loop's, agree() the
// first thing of a pass, on the thread that brings the first gradient. Private to bindings/torch.
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

  /// Of the next pass; the last call counts. The other ranks learn it meanwhile: all ranks call it.
  /// Throws kInvalidArgument for a negative number.
  void tell(const std::string& prefix, std::int64_t samples);
  /// The weight of this rank's gradients in this pass, whose average over the ranks is then that of
  /// all samples. Throws kInvalidArgument on every rank if one has not told its samples, or all
  /// have none.
  void agree(const std::string& prefix);
  /// Gives the tensor that weight.
  void weigh(const torch::Tensor& gradients) const;

 private:
  std::optional<std::int64_t> samples_;  ///< told, for the next pass
  TensorWork sum_;                       ///< of all ranks, under way
  double weight_ = 1;                    ///< in this pass
};

}  // namespace kolo
