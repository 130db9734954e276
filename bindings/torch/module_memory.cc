#include "bindings/torch/module_memory.h"

#include "bindings/torch/tensor_memory.h"

#include <sstream>
#include <utility>

namespace kolo {

ModuleMemory::ModuleMemory(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
}

template <class Call>
void ModuleMemory::attempt(const Call& call) {
  try {
    call();
  } catch (...) {
    restore();
    throw;
  }
}

void ModuleMemory::load(torch::nn::Module& module, torch::serialize::InputArchive& archive) {
  attempt([&] { module.load(archive); });
  set_loaded_aside();
}

void ModuleMemory::save(torch::nn::Module& module, torch::serialize::OutputArchive& archive) {
  show_on_cpu();
  attempt([&] { module.save(archive); });
  restore();
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

void ModuleMemory::show_on_cpu() {
  for (Slot& slot : slots_) {
    if (!slot.memory.is_cpu()) slot.tensor.set_data(slot.memory.cpu());
  }
}

void ModuleMemory::restore() {
  for (Slot& slot : slots_) slot.tensor.set_data(slot.memory);
}

void ModuleMemory::add(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.defined()) slots_.push_back({name, tensor, tensor.variable_data()});
}

void save_module(torch::nn::Module& module, torch::serialize::OutputArchive& archive) {
  const torch::NoGradGuard no_grad;
  ModuleMemory(module).save(module, archive);
}

}  // namespace kolo
