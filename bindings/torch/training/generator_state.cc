#include "bindings/torch/training/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <kolo/torch/device.h>

#include <mutex>
#include <vector>

namespace kolo {
namespace {

std::vector<at::Generator> generators() {
  std::vector<at::Generator> all{at::detail::getDefaultCPUGenerator()};
  if (const torch::Device own = device(); !own.is_cpu()) {
    all.push_back(at::globalContext().defaultGenerator(own));
  }
  return all;
}

torch::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

torch::Tensor generator_state() {
  std::vector<torch::Tensor> states;
  for (const at::Generator& generator : generators()) states.push_back(state_of(generator));
  return torch::cat(states);
}

void set_generator_state(const torch::Tensor& state) {
  std::int64_t offset = 0;
  for (at::Generator& generator : generators()) {
    const std::int64_t bytes = state_of(generator).numel();
    if (offset + bytes > state.numel()) return;
    const torch::Tensor own = state.slice(0, offset, offset + bytes).clone();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(own);
    offset += bytes;
  }
}

}  // namespace kolo
