// Writes and reads the contents of a checkpoint's archive; all ranks agree on the outcome. Called
// by the training loop's thread.
#include "bindings/torch/gradients/optimizer_archive.h"
#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/training/checkpoint_file.h"
#include "bindings/torch/training/generator_state.h"
#include "bindings/torch/training/module_memory.h"

#include <kolo/torch/checkpoint.h>
#include <kolo/torch/objects.h>
#include <kolo/torch/sharded_parameters.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {
namespace {

namespace fs = std::filesystem;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// Key of kolo's data, beside the model's own keys, which torch::load() reads by name.
constexpr const char* kExtra = "kolo_checkpoint";

std::string described(const fs::path& path, const std::string& part) {
  return "checkpoint " + path.string() + ": " + part;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  raise(ErrorCode::kInvalidArgument, described(path, what));
}

/// A part, with its key in the archive and its name for messages.
template <class Part>
struct Named {
  std::string key;
  std::string text;
  Part* part;
};

/// All parts of one kind: the unnamed one, if any, then the named ones.
template <class Part>
std::vector<Named<Part>> parts_of(const char* kind, Part* first,
                                  const std::map<std::string, Part*>& further) {
  std::vector<Named<Part>> all;
  if (first != nullptr) all.push_back({kind, kind, first});
  for (const auto& [name, part] : further)
    all.push_back({fmt::format("{}_{}", kind, name), fmt::format("{} '{}'", kind, name), part});
  return all;
}

std::vector<Named<torch::nn::Module>> further_modules(const CheckpointParts& parts) {
  return parts_of<torch::nn::Module>("module", nullptr, parts.modules);
}
std::vector<Named<torch::optim::Optimizer>> optimizers_of(const CheckpointParts& parts) {
  return parts_of("optimizer", parts.optimizer, parts.optimizers);
}
std::vector<Named<SchedulerState>> schedulers_of(const CheckpointParts& parts) {
  return parts_of("scheduler", parts.scheduler, parts.schedulers);
}

/// The optimizers whose state is spread over the ranks.
std::vector<ShardedState*> sharded_of(const CheckpointParts& parts) {
  std::vector<ShardedState*> sharded;
  for (const auto& optimizer : optimizers_of(parts)) {
    if (auto* const state = dynamic_cast<ShardedState*>(optimizer.part)) sharded.push_back(state);
  }
  return sharded;
}

constexpr std::string_view kWordCharacters =
    "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

template <class Part>
void check_names(const fs::path& path, const char* kind,
                 const std::map<std::string, Part*>& further) {
  for (const auto& [name, part] : further) {
    if (name.empty() || name.find_first_not_of(kWordCharacters) != std::string::npos) {
      refuse(path, fmt::format("{} '{}': names are of letters, digits and '_'", kind, name));
    }
    if (part == nullptr) refuse(path, fmt::format("{} '{}' is a null pointer", kind, name));
  }
}

void check(const fs::path& path, const CheckpointParts& parts) {
  check_names(path, "module", parts.modules);
  check_names(path, "optimizer", parts.optimizers);
  check_names(path, "scheduler", parts.schedulers);
  constexpr const char* why = "without its optimizer, which has the learning rates; pass it, too";
  if (parts.scheduler != nullptr && parts.optimizer == nullptr) {
    refuse(path, fmt::format("a scheduler {}", why));
  }
  for (const auto& [name, scheduler] : parts.schedulers) {
    if (!parts.optimizers.contains(name)) {
      refuse(path, fmt::format("scheduler '{}' {} under that name", name, why));
    }
  }
}

/// Collective: a misfit on one rank is an error on all, so that no rank waits for it.
void check_on_all(const std::string& misfit, const char* name) {
  allgather_bytes({.failure = misfit}, {.name = name});
}

/// Whether the ranks can no longer communicate.
bool ends_communication(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kTransport ||
         code == ErrorCode::kAborted;
}

/// The states of all ranks' generators, by rank.
void save_generators(const std::vector<torch::Tensor>& states, OutputArchive& archive) {
  archive.write("ranks", torch::tensor(static_cast<std::int64_t>(states.size())), true);
  for (std::size_t i = 0; i < states.size(); ++i) {
    archive.write(std::to_string(i), states[i], true);
  }
}

torch::Tensor tensor_of(const std::string& bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  torch::Tensor tensor = torch::empty({size}, torch::kUInt8);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<std::uint8_t>());
  return tensor;
}

std::string string_of(const torch::Tensor& bytes) {
  const auto* const first = bytes.const_data_ptr<std::uint8_t>();
  return {first, first + bytes.numel()};
}

std::string archive_of(const CheckpointParts& parts, std::int64_t epoch,
                       const std::vector<torch::Tensor>& generators) {
  const torch::NoGradGuard no_grad;
  std::list<ModuleOnCpu> on_cpu;  // alive until the archive is written
  const auto save_module = [&](torch::nn::Module& module, OutputArchive& nested) {
    on_cpu.emplace_back(module);
    module.save(nested);
  };
  OutputArchive archive;
  if (parts.module != nullptr) save_module(*parts.module, archive);
  OutputArchive extra(archive.compilation_unit());
  extra.write("epoch", torch::tensor(epoch, torch::kInt64), true);
  const auto write = [&](const std::string& key, auto* part, const auto& save) {
    if (part == nullptr) return;
    OutputArchive nested(archive.compilation_unit());
    save(*part, nested);
    extra.write(key, nested);
  };
  const auto write_all = [&](const auto& named, const auto& save) {
    for (const auto& [key, text, part] : named) write(key, part, save);
  };
  const auto own = [](const auto& part, OutputArchive& nested) { part.save(nested); };
  write_all(further_modules(parts), save_module);
  write_all(optimizers_of(parts), save_optimizer);
  write_all(schedulers_of(parts), own);
  write("sampler", parts.sampler, own);
  write("scaler", parts.scaler, own);
  if (parts.generators) write("generators", &generators, save_generators);
  if (parts.data != nullptr) extra.write("data", tensor_of(*parts.data), true);
  archive.write(kExtra, extra);
  return bytes_of(archive);
}

/// The current state of a part that LibTorch's archives can hold.
template <class Part>
std::string state_of(const Part& part) {
  OutputArchive archive;
  part.save(archive);
  return bytes_of(archive);
}

/// Loads parts, and restores all of them if one fails on any rank. Modules are copied last, when
/// nothing can fail any more; the other parts are rolled back.
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
    if (parts_.module != nullptr) load_module(*parts_.module, archive_);
    for (const auto& scheduler : schedulers_of(parts_)) find(scheduler.key, scheduler.text);
    if (parts_.sampler != nullptr) find("sampler", "sampler");
    load_all(further_modules(parts_),
             [this](auto& module, InputArchive& nested) { load_module(module, nested); });
    load_all(optimizers_of(parts_), [this](auto& optimizer, InputArchive& nested) {
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
    if (parts_.data != nullptr && !extra_.try_read("data", data_, true)) fail_without("data");
    torch::Tensor epoch;
    extra_.read("epoch", epoch, true);
    return epoch.item<std::int64_t>();
  }

  /// Runs after all ranks have loaded the rest, because these parts do not roll back completely: a
  /// ReduceLROnPlateau loads only once, and a sampler begins a new pass.
  void load_what_counts() {
    load("sampler", parts_.sampler, [this](auto& sampler, InputArchive& nested) {
      go_back_to_state_of(sampler);
      sampler.load(nested);
    });
    load_all(schedulers_of(parts_), [this](SchedulerState& scheduler, InputArchive& nested) {
      go_back_to_state_of(scheduler);
      scheduler.load(nested);
    });
  }

  void keep() {
    undo_.clear();
    const torch::NoGradGuard no_grad;
    for (ModuleMemory& memory : memories_) memory.take_over();
    if (data_.defined()) *parts_.data = string_of(data_);
    if (generators_.defined()) set_generator_state(generators_);
  }

 private:
  /// The generators of a job with another number of ranks do not apply to this rank.
  void read_generators() {
    InputArchive nested = find("generators", "generators");
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

  void load_module(torch::nn::Module& module, InputArchive& archive) {
    memories_.emplace_back(module).load(module, archive);
  }

  [[noreturn]] static void fail_without(const std::string& part) {
    raise(ErrorCode::kInvalidArgument, part + ": none was saved");
  }

  InputArchive find(const std::string& key, const std::string& text) {
    InputArchive nested;
    if (!extra_.try_read(key, nested)) fail_without(text);
    return nested;
  }

  template <class Part, class Take>
  void load(const std::string& key, Part* part, const Take& take) {
    if (part != nullptr) load_all(std::vector<Named<Part>>{{key, key, part}}, take);
  }

  template <class Part, class Take>
  void load_all(const std::vector<Named<Part>>& named, const Take& take) {
    for (const auto& [key, text, part] : named) {
      InputArchive nested = find(key, text);
      const std::string failure = failure_of([&, &to = *part] { take(to, nested); });
      if (!failure.empty()) raise(ErrorCode::kInvalidArgument, text + ": " + failure);
    }
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
  std::vector<ModuleMemory> memories_;
  torch::Tensor data_;        ///< bytes; undefined if the caller does not want them
  torch::Tensor generators_;  ///< state of this rank; undefined if its generators stay unchanged
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
  // A run that took an unreadable folder for an empty one would start from scratch.
  if (error && error != std::errc::no_such_file_or_directory) {
    raise(ErrorCode::kInvalidArgument, "the folder of checkpoints " + folder.string() +
                                           " cannot be read (" + error.message() +
                                           "); name a folder that rank 0 can read");
  }
  return newest;
}

/// Collective: gives rank 0 what all ranks hold.
void consolidate(const fs::path& path, const std::vector<ShardedState*>& all_sharded) {
  // Some exchanges do not involve rank 0, so it learns of their failures here.
  Parcel states;
  for (ShardedState* const sharded : all_sharded) {
    const std::string failure = failure_of([&] { sharded->consolidate(0); });
    if (states.failure.empty() && !failure.empty()) states.failure = described(path, failure);
  }
  allgather_bytes(states, {.name = "save_checkpoint/states"});
}

}  // namespace

void save_checkpoint(const fs::path& path, const CheckpointParts& parts, std::int64_t epoch) {
  const std::string misfit = failure_of([&] { check(path, parts); });
  const std::vector<ShardedState*> all_sharded = sharded_of(parts);
  std::vector<torch::Tensor> generators;
  std::optional<Exception> lost;
  try {
    check_on_all(misfit, "save_checkpoint/parts");
    consolidate(path, all_sharded);
    if (parts.generators) {
      generators = allgather_object(generator_state(), {.name = "save_checkpoint/generators"});
    }
  } catch (const Exception& error) {
    // The job ends here; this is the last chance to save.
    const bool has_all = misfit.empty() && all_sharded.empty() && !parts.generators;
    if (rank() != 0 || !has_all || !ends_communication(error.code())) throw;
    lost = error;
  }
  Parcel outcome;
  if (rank() == 0) {
    outcome.failure =
        failure_of([&] { write_checkpoint_file(path, archive_of(parts, epoch, generators)); });
  }
  if (lost) {
    if (outcome.failure.empty()) throw *lost;
    raise(lost->code(), fmt::format("{}; {}", lost->what(), outcome.failure));
  }
  broadcast_bytes(std::move(outcome), 0, {.name = "save_checkpoint"});
}

std::int64_t load_checkpoint(const fs::path& path, const CheckpointParts& parts) {
  check_on_all(failure_of([&] { check(path, parts); }), "load_checkpoint/parts");
  Parcel parcel;
  if (rank() == 0) {
    parcel.failure = failure_of([&] { parcel.bytes = read_checkpoint_file(path); });
  }
  const std::string bytes = broadcast_bytes(std::move(parcel), 0, {.name = "load_checkpoint"});
  // Collective, so it comes before steps that may fail on one rank.
  for (ShardedState* const sharded : sharded_of(parts)) sharded->take_added_groups();
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
