// What goes into a checkpoint's archive and comes out of it, and the agreement of all ranks on the
// outcome. Called by the training loop's thread.
#include "bindings/torch/checkpoint_file.h"
#include "bindings/torch/failure.h"
#include "bindings/torch/optimizer_archive.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/checkpoint.h>
#include <kolo/torch/objects.h>
#include <kolo/torch/sharded_parameters.h>

#include <utility>

namespace kolo {
namespace {

namespace fs = std::filesystem;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// Beside the model's own keys, which torch::load() asks for by name.
constexpr const char* kExtra = "kolo_checkpoint";

std::string described(const fs::path& path, const std::string& part) {
  return "checkpoint " + path.string() + ": " + part;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  raise(ErrorCode::kInvalidArgument, described(path, what));
}

void check(const fs::path& path, const CheckpointParts& parts) {
  if (parts.scheduler != nullptr && parts.optimizer == nullptr) {
    refuse(path, "a scheduler without its optimizer, which has the learning rates; pass it, too");
  }
}

/// A module's tensors before it is loaded. LibTorch gives them other memory and would take any
/// shape; here they keep theirs, which gradients, buckets and optimizers may be tied to.
class ModuleMemory {
 public:
  explicit ModuleMemory(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) add(item.key(), item.value());
    for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  }

  /// Copies what was loaded into the old memory; if a tensor does not fit, into none.
  void take_over() {
    std::string misfit;
    std::vector<torch::Tensor> loaded;
    for (Slot& slot : slots_) {
      loaded.push_back(slot.tensor.variable_data());
      const torch::Tensor& memory = slot.memory;
      if (misfit.empty() && (loaded.back().sizes() != memory.sizes() ||
                             loaded.back().scalar_type() != memory.scalar_type())) {
        std::ostringstream text;
        text << "'" << slot.name << "' was saved as " << loaded.back().scalar_type() << ' '
             << loaded.back().sizes() << ", but this module's is " << memory.scalar_type() << ' '
             << memory.sizes() << "; load it into the module that was saved";
        misfit = std::move(text).str();
      }
    }
    restore();
    if (!misfit.empty()) raise(ErrorCode::kInvalidArgument, misfit);
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].memory.copy_(loaded[i]);
  }

  /// Until restore(), tensors of other devices are copies on the CPU.
  void show_on_cpu() {
    for (Slot& slot : slots_) {
      if (!slot.memory.is_cpu()) slot.tensor.set_data(slot.memory.cpu());
    }
  }

  void restore() {
    for (Slot& slot : slots_) slot.tensor.set_data(slot.memory);
  }

 private:
  struct Slot {
    std::string name;
    torch::Tensor tensor;
    torch::Tensor memory;
  };
  void add(const std::string& name, const torch::Tensor& tensor) {
    if (tensor.defined()) slots_.push_back({name, tensor, tensor.variable_data()});
  }
  std::vector<Slot> slots_;
};

/// As the CPU has it, so that it can be read where this device is not.
void save_module(torch::nn::Module& module, OutputArchive& archive) {
  const torch::NoGradGuard no_grad;
  ModuleMemory memory(module);
  memory.show_on_cpu();
  try {
    module.save(archive);
  } catch (...) {
    memory.restore();
    throw;
  }
  memory.restore();
}

std::string archive_of(const CheckpointParts& parts, std::int64_t epoch) {
  OutputArchive archive;
  if (parts.module != nullptr) save_module(*parts.module, archive);
  OutputArchive extra(archive.compilation_unit());
  extra.write("epoch", torch::tensor(epoch, torch::kInt64), true);
  const auto write = [&](const char* key, auto* part, const auto& save) {
    if (part == nullptr) return;
    OutputArchive nested(archive.compilation_unit());
    save(*part, nested);
    extra.write(key, nested);
  };
  const auto own = [](const auto& part, OutputArchive& nested) { part.save(nested); };
  write("optimizer", parts.optimizer, save_optimizer);
  write("scheduler", parts.scheduler, own);
  write("sampler", parts.sampler, own);
  write("scaler", parts.scaler, own);
  archive.write(kExtra, extra);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void load_module(torch::nn::Module& module, InputArchive& archive) {
  const torch::NoGradGuard no_grad;
  ModuleMemory memory(module);
  try {
    module.load(archive);
  } catch (...) {
    memory.restore();
    throw;
  }
  memory.take_over();
}

std::int64_t load_parts(const std::string& bytes, const CheckpointParts& parts) {
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), torch::kCPU);
  InputArchive extra;
  archive.read(kExtra, extra);
  const auto load = [&](const char* key, auto* part, const auto& take) {
    if (part == nullptr) return;
    InputArchive nested;
    const std::string failure =
        extra.try_read(key, nested) ? failure_of([&] { take(*part, nested); }) : "none was saved";
    if (!failure.empty()) raise(ErrorCode::kInvalidArgument, std::string(key) + ": " + failure);
  };
  const auto own = [](auto& part, InputArchive& nested) { part.load(nested); };
  if (parts.module != nullptr) load_module(*parts.module, archive);
  load("scheduler", parts.scheduler, own);
  load("optimizer", parts.optimizer, load_optimizer);
  load("sampler", parts.sampler, own);
  load("scaler", parts.scaler, own);
  torch::Tensor epoch;
  extra.read("epoch", epoch, true);
  return epoch.item<std::int64_t>();
}

}  // namespace

void save_checkpoint(const fs::path& path, const CheckpointParts& parts, std::int64_t epoch) {
  check(path, parts);
  Parcel outcome;
  // Its state is on all ranks; rank 0 writes.
  if (auto* const sharded = dynamic_cast<ShardedState*>(parts.optimizer))
    outcome.failure = failure_of([&] { sharded->consolidate(0); });
  if (rank() == 0 && outcome.failure.empty()) {
    outcome.failure = failure_of([&] { write_checkpoint_file(path, archive_of(parts, epoch)); });
  }
  broadcast_bytes(std::move(outcome), 0, {.name = "save_checkpoint"});
}

std::int64_t load_checkpoint(const fs::path& path, const CheckpointParts& parts) {
  check(path, parts);
  Parcel parcel;
  if (rank() == 0) {
    parcel.failure = failure_of([&] { parcel.bytes = read_checkpoint_file(path); });
  }
  const std::string bytes = broadcast_bytes(std::move(parcel), 0, {.name = "load_checkpoint"});
  std::int64_t epoch = 0;
  Parcel outcome;
  outcome.failure = failure_of([&] { epoch = load_parts(bytes, parts); });
  if (!outcome.failure.empty()) outcome.failure = described(path, outcome.failure);
  allgather_bytes(outcome, {.name = "load_checkpoint/outcome"});
  return epoch;
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder) {
  fs::path newest;
  if (rank() == 0) {
    std::error_code error;
    std::int64_t time = 0;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
      const std::optional<std::int64_t> saved = checkpoint_time(i->path());
      if (!saved || (!newest.empty() && *saved <= time)) continue;
      time = *saved;
      newest = i->path();
    }
  }
  const std::string name =
      broadcast_bytes({.bytes = newest.string()}, 0, {.name = "newest_checkpoint"});
  return name.empty() ? std::nullopt : std::optional<fs::path>(name);
}

}  // namespace kolo
