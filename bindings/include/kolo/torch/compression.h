// Compression of gradients in transit. A DistributedOptimizer calls it when it submits a gradient
// and when the reduction is done. (After Horovod's Compression; error feedback: Karimireddy et al.,
// "Error feedback fixes SignSGD", ICML 2019.)
//
//   kolo::DistributedOptimizer optimizer(
//       torch::optim::SGD(model->parameters(), 0.1), model->named_parameters(),
//       {.compression = kolo::compression::fp16()});
#pragma once

#include <kolo/export.h>
#include <torch/types.h>

#include <memory>
#include <string>

namespace kolo {

/// Base class for a compression of your own. Pass an object to
/// DistributedOptimizerOptions::compression:
///
///   struct Half : kolo::Compressor {
///     torch::ScalarType wire_type(torch::ScalarType) const override { return torch::kHalf; }
///     torch::Tensor compress(const std::string&, const torch::Tensor& gradient) override {
///       return gradient.to(torch::kHalf);
///     }
///   };
///
/// - Every rank uses the same compression.
/// - An object belongs to one optimizer and may keep state by name. Calls come from one thread at a
///   time.
class KOLO_API Compressor {
 public:
  virtual ~Compressor() = default;

  /// Type of the tensor that compress() returns for a gradient of type `type`.
  virtual torch::ScalarType wire_type(torch::ScalarType type) const = 0;
  /// Returns the tensor that the ranks reduce in place of `gradient`. It has the gradient's shape.
  /// It must not share the gradient's memory unless the types are equal. `name` is the parameter's
  /// name. An exception fails that gradient on all ranks (kInvalidArgument).
  virtual torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) = 0;
  /// Writes the reduced `wire` into `gradient`; the default converts it. An exception ends
  /// communication on all ranks (kAborted), because the other ranks have their gradient already.
  virtual void decompress(const std::string& name, const torch::Tensor& wire,
                          torch::Tensor gradient);
};

namespace compression {

/// float32 and float64 gradients travel as float16 (±65504, 11 bits) or bfloat16 (8 bits). Sums are
/// computed in float32. Other types travel uncompressed.
KOLO_API std::shared_ptr<Compressor> fp16();
KOLO_API std::shared_ptr<Compressor> bf16();
/// fp16() that adds the rounding error of a gradient to the next gradient of the same name. It
/// keeps one tensor of each gradient's size.
KOLO_API std::shared_ptr<Compressor> fp16_with_error_feedback();

}  // namespace compression
}  // namespace kolo
