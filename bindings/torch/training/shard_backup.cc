#include "bindings/torch/training/shard_backup.h"

#include "bindings/core/hosts.h"
#include "bindings/torch/gradients/optimizer_archive.h"
#include "bindings/torch/gradients/shard_layout.h"
#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <algorithm>
#include <set>
#include <utility>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// Backups take at most one part in so many of the time.
constexpr int kShare = 50;
/// The tag of the messages; a program's own have others.
constexpr std::uint32_t kTag = 0x73686172;

void save_options(const torch::optim::Optimizer& optimizer, OutputArchive& archive) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    OutputArchive nested(archive.compilation_unit());
    optimizer.param_groups()[g].options().serialize(nested);
    archive.write("group" + std::to_string(g), nested);
  }
}

void load_options(torch::optim::Optimizer& optimizer, InputArchive& archive) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    InputArchive nested;
    archive.read("group" + std::to_string(g), nested);
    optimizer.param_groups()[g].options().serialize(nested);
  }
}

/// Whether a step, here or before a load, has changed its state. Adagrad has one from the
/// beginning.
bool has_changed(torch::optim::Optimizer* optimizer) {
  return std::any_of(optimizer->state().begin(), optimizer->state().end(), [](const auto& item) {
    const auto state = known_state_of(*item.second);
    return !state || state->step == nullptr || *state->step > 0;
  });
}

/// Memory for so many bytes: that of `buffer`, unless it is too small or much too large.
void resize(torch::Tensor& buffer, std::int64_t bytes) {
  const auto has = buffer.defined() ? static_cast<std::int64_t>(buffer.storage().nbytes()) : 0;
  if (!buffer.defined() || has < bytes || has > 2 * bytes) {
    buffer = torch::empty({bytes}, torch::kUInt8);
  } else {
    buffer.resize_({bytes});
  }
}

std::byte* memory_of(const torch::Tensor& buffer) {
  return static_cast<std::byte*>(buffer.data_ptr());
}

}  // namespace

void broadcast_options(torch::optim::Optimizer& optimizer, int root) {
  std::string mine;
  if (rank() == root) {
    OutputArchive archive;
    save_options(optimizer, archive);
    mine = bytes_of(archive);
  }
  const std::string bytes = broadcast_object(mine, root);
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  load_options(optimizer, archive);
}

ShardBackup::ShardBackup(std::vector<torch::nn::Module*> modules, Optimizers replicated,
                         Optimizers sharded)
    : modules_(std::move(modules)),
      replicated_(std::move(replicated)),
      sharded_(std::move(sharded)) {
  for (torch::optim::Optimizer* optimizer : sharded_)
    parts_.push_back(dynamic_cast<ShardedState*>(optimizer));
}

bool ShardBackup::is_due() const { return Clock::now() - ended_ >= (kShare - 1) * cost_; }

void ShardBackup::make(std::int64_t generation, std::int64_t progress, Rest rest) {
  const Clock::time_point begun = Clock::now();
  const int me = rank();
  const torch::Tensor sizes =
      allgather(torch::tensor({part_bytes()}, torch::kInt64), {.name = "elastic/part bytes"});
  Slot& slot = slots_[1 - newest_];
  slot.version = {};
  const auto size_of = [&](int r) { return sizes[r].item<std::int64_t>(); };
  resize(slot.own, size_of(me));
  save_part(slot.own);
  slot.part = me;
  slot.replicated = save_replicated();
  slot.rest = std::move(rest);
  const std::vector<int> keepers = keepers_of(hosts_of_ranks());
  const int keeper = keepers[static_cast<std::size_t>(me)];
  const auto from =
      static_cast<int>(std::find(keepers.begin(), keepers.end(), me) - keepers.begin());
  slot.kept_part = from;
  if (from != me) {
    resize(slot.kept, size_of(from));
    TensorWork received = recv_async_(slot.kept, from, {.tag = kTag});
    TensorWork sent = send_async(slot.own, keeper, {.tag = kTag});
    FirstFailure failure;
    failure.attempt([&] { received.wait(); });
    failure.attempt([&] { sent.wait(); });
    failure.rethrow();
  }
  slot.version = {.generation = generation, .progress = progress, .parts = size()};
  barrier_ordered();
  newest_ = 1 - newest_;
  has_begun_ = true;
  ended_ = Clock::now();
  cost_ = ended_ - begun;
}

void ShardBackup::leave_world() {
  has_lost_ =
      has_lost_ || (!has_begun_ && std::any_of(sharded_.begin(), sharded_.end(), has_changed));
  for (ShardedState* sharded : parts_) sharded->leave_world();
}

void ShardBackup::enter_world() {
  for (ShardedState* sharded : parts_) sharded->enter_world();
}

std::optional<ShardBackup::Restored> ShardBackup::restore() {
  const std::vector<PartCopy> copies = all_copies();
  const auto backup = newest_whole(copies);
  if (!backup && any(has_lost_)) {
    raise(ErrorCode::kPeerLost,
          "elastic::run(): a rank was lost before the first backup of the optimizer's state that "
          "was loaded; begin anew from the checkpoint");
  }
  if (!backup && !any(has_begun_)) return std::nullopt;
  if (!backup) {
    raise(ErrorCode::kPeerLost, "elastic::run(): " + parts_gone(copies) +
                                    "; begin anew from a checkpoint, and save one from time to "
                                    "time within elastic::run()");
  }
  Slot* const mine = slot_of(backup->version);
  if (mine != nullptr) newest_ = static_cast<std::size_t>(mine - slots_.data());
  torch::Tensor buffer;
  for (const PartCopy& copy : backup->parts) {
    torch::Tensor part;
    if (copy.holder == rank()) {
      part = mine->part == copy.part ? mine->own : mine->kept;
    } else {
      resize(buffer, copy.bytes);
      part = buffer;
    }
    load_part(broadcast_(part, copy.holder, {.name = "elastic/part"}), copy);
  }
  int root = size();
  for (const PartCopy& copy : copies)
    if (copy.version == backup->version) root = std::min(root, copy.holder);
  const bool is_root = rank() == root;
  load_replicated(broadcast_object(is_root ? mine->replicated : std::string(), root));
  Restored restored{.version = backup->version, .rest = {}};
  const auto count = broadcast_object(is_root ? mine->rest.size() : 0, root);
  for (std::size_t i = 0; i < count; ++i)
    restored.rest.push_back(broadcast_object(is_root ? mine->rest[i] : std::string(), root));
  return restored;
}

std::vector<PartCopy> ShardBackup::all_copies() const {
  std::vector<std::int64_t> rows;
  const auto add = [&](const Slot& slot, std::int64_t part, const torch::Tensor& bytes) {
    const BackupVersion& v = slot.version;
    rows.insert(rows.end(),
                {v.generation, v.progress, v.parts, part, v.generation == 0 ? 0 : bytes.numel()});
  };
  for (const Slot& slot : slots_) {
    add(slot, slot.part, slot.own);
    add(slot, slot.kept_part, slot.kept_part == slot.part ? slot.own : slot.kept);
  }
  const std::int64_t columns = 5;
  const auto each = static_cast<std::int64_t>(rows.size()) / columns;
  const torch::Tensor all = allgather(torch::tensor(rows, torch::kInt64).view({each, columns}));
  std::vector<PartCopy> copies;
  for (std::int64_t i = 0; i < all.size(0); ++i) {
    const auto* const row = all.const_data_ptr<std::int64_t>() + i * columns;
    if (row[0] == 0) continue;
    copies.push_back({.holder = static_cast<int>(i / each),
                      .version = {.generation = row[0], .progress = row[1], .parts = row[2]},
                      .part = row[3],
                      .bytes = row[4]});
  }
  return copies;
}

ShardBackup::Slot* ShardBackup::slot_of(const BackupVersion& version) {
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& each) { return each.version == version; });
  return slot == slots_.end() ? nullptr : &*slot;
}

std::int64_t ShardBackup::part_bytes() const {
  std::int64_t bytes = 0;
  for (ShardedState* sharded : parts_) bytes += sharded->part_bytes();
  return bytes;
}

void ShardBackup::save_part(torch::Tensor& to) const {
  std::byte* at = memory_of(to);
  for (ShardedState* sharded : parts_) at = sharded->save_part(at);
}

void ShardBackup::load_part(const torch::Tensor& from, const PartCopy& copy) const {
  std::int64_t at = 0;
  for (ShardedState* sharded : parts_) {
    at += sharded->load_part(memory_of(from) + at, copy.bytes - at, static_cast<int>(copy.part),
                             static_cast<int>(copy.version.parts));
  }
}

/// What the parts lack: buffers, and parameters of other optimizers or of none.
std::vector<torch::Tensor> ShardBackup::replicated_tensors() const {
  std::set<const void*> in_parts;
  for (const ShardedState* sharded : parts_)
    for (const torch::Tensor& tensor : sharded->whole_parameters())
      in_parts.insert(tensor.unsafeGetTensorImpl());
  std::vector<torch::Tensor> tensors;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      const torch::Tensor& tensor = item.value();
      if (tensor.defined() && !in_parts.contains(tensor.unsafeGetTensorImpl()))
        tensors.push_back(tensor);
    }
  };
  for (const torch::nn::Module* module : modules_) {
    add(module->named_parameters());
    add(module->named_buffers());
  }
  return tensors;
}

std::string ShardBackup::save_replicated() const {
  OutputArchive archive;
  const auto write = [&](const std::string& key, auto* optimizer, const auto& save) {
    OutputArchive nested(archive.compilation_unit());
    save(*optimizer, nested);
    archive.write(key, nested);
  };
  const auto tensors = replicated_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    archive.write("tensor" + std::to_string(i), tensors[i].detach().cpu().clone());
  for (std::size_t i = 0; i < replicated_.size(); ++i)
    write("optimizer" + std::to_string(i), replicated_[i], save_optimizer);
  for (std::size_t i = 0; i < sharded_.size(); ++i)
    write("sharded" + std::to_string(i), sharded_[i], save_options);
  return bytes_of(archive);
}

void ShardBackup::load_replicated(const std::string& bytes) const {
  const torch::NoGradGuard no_grad;
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), torch::kCPU);
  const auto read = [&](const std::string& key, auto* optimizer, const auto& load) {
    InputArchive nested;
    archive.read(key, nested);
    load(*optimizer, nested);
  };
  const auto tensors = replicated_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor saved;
    archive.read("tensor" + std::to_string(i), saved);
    tensors[i].detach().copy_(saved);
  }
  for (std::size_t i = 0; i < replicated_.size(); ++i)
    read("optimizer" + std::to_string(i), replicated_[i], load_optimizer);
  for (std::size_t i = 0; i < sharded_.size(); ++i)
    read("sharded" + std::to_string(i), sharded_[i], load_options);
}

}  // namespace kolo
