#include "bindings/torch/training/module_memory.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <cstddef>
#include <sstream>
#include <utility>

namespace kolo {

ModuleMemory::ModuleMemory(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
}

void ModuleMemory::load(torch::nn::Module& module, torch::serialize::InputArchive& archive) {
  try {
    module.load(archive);
  } catch (...) {
    restore();
    throw;
  }
  set_loaded_aside();
}

void ModuleMemory::set_loaded_aside() {
  std::string misfit;
  for (Slot& slot : slots_) {
    loaded_.push_back(slot.tensor.variable_data());
    const torch::Tensor& memory = slot.memory;
    if (misfit.empty() && (loaded_.back().sizes() != memory.sizes() ||
                           loaded_.back().scalar_type() != memory.scalar_type())) {
      std::ostringstream text;
      text << "'" << slot.name << "' was saved as " << loaded_.back().scalar_type() << ' '
           << loaded_.back().sizes() << ", but this module's is " << memory.scalar_type() << ' '
           << memory.sizes() << "; load it into the module that was saved";
      misfit = std::move(text).str();
    }
  }
  restore();
  if (!misfit.empty()) raise(ErrorCode::kInvalidArgument, misfit);
}

void ModuleMemory::take_over() {
  for (std::size_t i = 0; i < loaded_.size(); ++i) slots_[i].memory.copy_(loaded_[i]);
}

void ModuleMemory::restore() {
  for (Slot& slot : slots_) slot.tensor.set_data(slot.memory);
}

void ModuleMemory::add(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.defined()) slots_.push_back({name, tensor, tensor.variable_data()});
}

ModuleOnCpu::ModuleOnCpu(const torch::nn::Module& module) {
  // Make all copies first: if one fails, the module is unchanged.
  std::vector<torch::Tensor> copies;
  const auto add = [&](const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return;
    moved_.emplace_back(tensor, tensor.variable_data());
    copies.push_back(moved_.back().second.cpu());
  };
  for (const torch::Tensor& parameter : module.parameters()) add(parameter);
  for (const torch::Tensor& buffer : module.buffers()) add(buffer);
  for (std::size_t i = 0; i < copies.size(); ++i) moved_[i].first.set_data(copies[i]);
}

ModuleOnCpu::~ModuleOnCpu() {
  for (auto& [tensor, memory] : moved_) tensor.set_data(memory);
}

}  // namespace kolo
