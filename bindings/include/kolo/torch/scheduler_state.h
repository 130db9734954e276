// The part of a scheduler that a checkpoint saves. kolo's own schedulers have it; LibTorch's do
// not.
//
//   struct Warmup : kolo::SchedulerState {
//     int steps = 0;
//     void save(torch::serialize::OutputArchive& archive) const override {
//       archive.write("steps", torch::tensor(steps), true);
//     }
//     void load(torch::serialize::InputArchive& archive) override {
//       torch::Tensor saved;
//       archive.read("steps", saved, true);
//       steps = saved.item<int>();
//     }
//   };
//
// - Used by the training loop's thread, in the same way on all ranks.
#pragma once

#include <kolo/export.h>
#include <torch/serialize/archive.h>

namespace kolo {

/// Derive from it for a scheduler of your own.
class KOLO_API SchedulerState {
 public:
  virtual ~SchedulerState() = default;
  virtual void save(torch::serialize::OutputArchive& archive) const = 0;
  virtual void load(torch::serialize::InputArchive& archive) = 0;
};

}  // namespace kolo
