// What goes into a checkpoint's archive and comes out of it, and the agreement of all ranks on the
// outcome. Called by the training loop's thread.
#include "bindings/torch/checkpoint_file.h"
#include "bindings/torch/failure.h"
#include "bindings/torch/generator_state.h"
#include "bindings/torch/optimizer_archive.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/checkpoint.h>
#include <kolo/torch/objects.h>
#include <kolo/torch/sharded_parameters.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

  /// Keeps what was loaded for take_over(), and gives the module its memory back. Throws if a
  /// tensor does not fit.
  void set_loaded_aside() {
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

  /// Copies what was loaded into the old memory.
  void take_over() {
    for (std::size_t i = 0; i < loaded_.size(); ++i) slots_[i].memory.copy_(loaded_[i]);
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
  std::vector<torch::Tensor> loaded_;  ///< by slot
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

/// The ranks' generator_state(), by rank.
void save_generators(const std::vector<torch::Tensor>& states, OutputArchive& archive) {
  archive.write("ranks", torch::tensor(static_cast<std::int64_t>(states.size())), true);
  for (std::size_t i = 0; i < states.size(); ++i) {
    archive.write(std::to_string(i), states[i], true);
  }
}

std::string archive_of(const CheckpointParts& parts, std::int64_t epoch,
                       const std::vector<torch::Tensor>& generators) {
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
  if (parts.generators) write("generators", &generators, save_generators);
  archive.write(kExtra, extra);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

/// A state of LibTorch's archives, as it is now.
template <class Part>
std::string state_of(const Part& part) {
  OutputArchive archive;
  part.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

/// Loads parts so that they are as before if some part fails, on whatever rank. The module is
/// copied last, when nothing can fail any more; the others go back.
class Loading {
 public:
  Loading(const std::string& bytes, const CheckpointParts& parts) : parts_(parts) {
    archive_.load_from(bytes.data(), bytes.size(), torch::kCPU);
    archive_.read(kExtra, extra_);
  }
  ~Loading() {
    for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo)
      static_cast<void>(failure_of(*undo));
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  /// Returns the epoch.
  std::int64_t load_state() {
    const torch::NoGradGuard no_grad;
    if (parts_.module != nullptr) load_module();
    if (parts_.scheduler != nullptr) find("scheduler");
    if (parts_.sampler != nullptr) find("sampler");
    load("optimizer", parts_.optimizer, [this](auto& optimizer, InputArchive& nested) {
      const auto before = std::make_shared<OptimizerBefore>(optimizer);
      undo_.emplace_back([before] { before->restore(); });
      load_optimizer(optimizer, nested);
      check_state_sizes(optimizer);
    });
    load("scaler", parts_.scaler, [this](GradScaler& scaler, InputArchive& nested) {
      undo_.emplace_back([&scaler, before = scaler] { scaler = before; });
      scaler.load(nested);
    });
    if (parts_.generators) read_generators();
    torch::Tensor epoch;
    extra_.read("epoch", epoch, true);
    return epoch.item<std::int64_t>();
  }

  /// After all ranks have the rest, for these do not quite go back: a ReduceLROnPlateau loads once,
  /// and a sampler begins a new pass.
  void load_what_counts() {
    load("sampler", parts_.sampler, [this](auto& sampler, InputArchive& nested) {
      go_back_to_state_of(sampler);
      sampler.load(nested);
    });
    load("scheduler", parts_.scheduler, [this](SchedulerState& scheduler, InputArchive& nested) {
      go_back_to_state_of(scheduler);
      scheduler.load(nested);
    });
  }

  void keep() {
    undo_.clear();
    const torch::NoGradGuard no_grad;
    if (memory_) memory_->take_over();
    if (generators_.defined()) set_generator_state(generators_);
  }

 private:
  /// Those of a job with other ranks say nothing about this one's.
  void read_generators() {
    InputArchive nested = find("generators");
    torch::Tensor ranks;
    nested.read("ranks", ranks, true);
    if (const auto saved = ranks.item<std::int64_t>(); saved != size()) {
      if (rank() == 0) {
        TORCH_WARN("kolo: the checkpoint has the generators of ", saved, " ranks, this job has ",
                   size(), "; each rank keeps its own");
      }
      return;
    }
    nested.read(std::to_string(rank()), generators_, true);
  }

  void load_module() {
    memory_.emplace(*parts_.module);
    try {
      parts_.module->load(archive_);
    } catch (...) {
      memory_->restore();
      throw;
    }
    memory_->set_loaded_aside();
  }

  InputArchive find(const std::string& key) {
    InputArchive nested;
    if (!extra_.try_read(key, nested)) {
      raise(ErrorCode::kInvalidArgument, key + ": none was saved");
    }
    return nested;
  }

  template <class Part, class Take>
  void load(const std::string& key, Part* part, const Take& take) {
    if (part == nullptr) return;
    InputArchive nested = find(key);
    const std::string failure = failure_of([&] { take(*part, nested); });
    if (!failure.empty()) raise(ErrorCode::kInvalidArgument, key + ": " + failure);
  }

  template <class Part>
  void go_back_to_state_of(Part& part) {
    undo_.emplace_back([&part, state = state_of(part)] {
      InputArchive before;
      before.load_from(state.data(), state.size());
      part.load(before);
    });
  }

  const CheckpointParts& parts_;
  InputArchive archive_;
  InputArchive extra_;
  std::optional<ModuleMemory> memory_;
  torch::Tensor generators_;  ///< this rank's state; undefined where it stays
  std::vector<std::function<void()>> undo_;
};

/// Empty if there is none.
fs::path newest_in(const fs::path& folder) {
  fs::path newest;
  std::error_code error;
  std::int64_t time = 0;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::optional<std::int64_t> saved = checkpoint_time(i->path());
    if (!saved || (!newest.empty() && *saved <= time)) continue;
    time = *saved;
    newest = i->path();
  }
  // A run that took it for empty would start from scratch.
  if (error && error != std::errc::no_such_file_or_directory) {
    raise(ErrorCode::kInvalidArgument, "the folder of checkpoints " + folder.string() +
                                           " cannot be read (" + error.message() +
                                           "); name a folder that rank 0 can read");
  }
  return newest;
}

}  // namespace

void save_checkpoint(const fs::path& path, const CheckpointParts& parts, std::int64_t epoch) {
  check(path, parts);
  Parcel outcome;
  // Its state is on all ranks; rank 0 writes.
  if (auto* const sharded = dynamic_cast<ShardedState*>(parts.optimizer))
    outcome.failure = failure_of([&] { sharded->consolidate(0); });
  std::vector<torch::Tensor> generators;
  if (parts.generators) {
    generators = allgather_object(generator_state(), {.name = "save_checkpoint/generators"});
  }
  if (rank() == 0 && outcome.failure.empty()) {
    outcome.failure =
        failure_of([&] { write_checkpoint_file(path, archive_of(parts, epoch, generators)); });
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
  // Together, before a rank may fail at something else.
  if (auto* const sharded = dynamic_cast<ShardedState*>(parts.optimizer))
    sharded->take_added_groups();
  std::int64_t epoch = 0;
  std::optional<Loading> loading;
  const auto on_all_ranks = [&](const auto& load) {
    Parcel outcome;
    outcome.failure = failure_of(load);
    if (!outcome.failure.empty()) outcome.failure = described(path, outcome.failure);
    allgather_bytes(outcome, {.name = "load_checkpoint/outcome"});
  };
  on_all_ranks([&] {
    loading.emplace(bytes, parts);
    epoch = loading->load_state();
  });
  on_all_ranks([&] { loading->load_what_counts(); });
  loading->keep();
  return epoch;
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder) {
  Parcel parcel;
  if (rank() == 0) {
    parcel.failure = failure_of([&] { parcel.bytes = newest_in(folder).string(); });
  }
  const std::string name = broadcast_bytes(std::move(parcel), 0, {.name = "newest_checkpoint"});
  return name.empty() ? std::nullopt : std::optional<fs::path>(name);
}

}  // namespace kolo
