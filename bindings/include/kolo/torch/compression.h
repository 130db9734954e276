// Compression: what travels in place of a gradient. Given to a DistributedOptimizer, which calls it
// when a gradient is submitted and when its reduction is back. (After Horovod's Compression; error
// feedback: Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019.)
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <memory>
#include <string>

namespace kolo {

/// One's own compression derives from this. Every rank uses the same. An object belongs to one
/// optimizer and may keep state by name; calls come from one thread at a time.
class KOLO_API Compressor {
 public:
  virtual ~Compressor() = default;

  /// The type of what compress() returns for a gradient of type `type`.
  virtual torch::ScalarType wire_type(torch::ScalarType type) const = 0;
  /// What is reduced over the ranks in place of `gradient`: of its shape, and not its memory unless
  /// the types are equal. `name` is the parameter's. What it throws fails that gradient on all
  /// ranks (kInvalidArgument).
  virtual torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) = 0;
  /// Writes the reduced `wire` into `gradient`; the default converts. What it throws ends
  /// communication on all ranks (kAborted), since the others have theirs.
  virtual void decompress(const std::string& name, const torch::Tensor& wire,
                          torch::Tensor gradient);
};

namespace compression {

/// float32 and float64 gradients travel as float16 (±65504, 11 bits) or bfloat16 (8 bits); sums are
/// made in float32. Other types travel as they are.
KOLO_API std::shared_ptr<Compressor> fp16();
KOLO_API std::shared_ptr<Compressor> bf16();
/// fp16() that adds what rounding has cut off to the next gradient of that name. Keeps a tensor of
/// each gradient's size.
KOLO_API std::shared_ptr<Compressor> fp16_with_error_feedback();

}  // namespace compression
}  // namespace kolo
