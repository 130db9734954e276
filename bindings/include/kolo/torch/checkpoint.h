// Checkpoints: one file with the model as torch::save writes it, and in the same archive all that a
// run needs to resume.
//
//   kolo::CheckpointParts parts{.module = model.get(), .optimizer = &optimizer};
//   if (const auto path = kolo::newest_checkpoint("checkpoints"))
//     first_epoch = kolo::load_checkpoint(*path, parts);
//   // … train epoch number `epoch` …
//   kolo::save_checkpoint("checkpoints/latest.pt", parts, epoch + 1);  // on every rank
//
// - Collective; used by the training loop's thread. Only rank 0 accesses the file system, so the
//   other ranks need not share it.
// - A program without kolo reads the model by torch::load(module, path), which ignores the rest.
// - kolo saves tensors as CPU tensors and loads them to the devices of the module and optimizer. So
//   a run may resume on other devices.
// - The file is a ZIP archive of LibTorch. Its comment holds the length, a checksum and the time,
//   so kolo detects a torn or damaged file.
// - The new file replaces an older one in one step, after it has reached the disk. A crash leaves
//   the old file or the new one.
// - kolo follows symlinks and refuses devices and pipes.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/grad_scaler.h>
#include <kolo/torch/scheduler_state.h>
#include <torch/data/samplers/base.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace kolo {

/// Parts of a checkpoint; null parts are left out. Pass the module that DistributedDataParallel
/// wraps, not the wrapper.
struct CheckpointParts {
  torch::nn::Module* module = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;
  /// Requires the optimizer, which holds the learning rates.
  SchedulerState* scheduler = nullptr;
  /// Sampler of a kolo::data_loader, or of LibTorch's loader without workers, to resume in the
  /// middle of an epoch. LibTorch's loader with workers has asked the sampler for batches that the
  /// loop has not received, and the resumed run would skip these.
  torch::data::samplers::Sampler<>* sampler = nullptr;
  GradScaler* scaler = nullptr;  ///< e.g. Accelerator::scaler()
  /// Saves each rank's generators of the CPU and of kolo::device(), which dropout, torch::rand()
  /// and similar functions use by default. The same on all ranks. A job with another number of
  /// ranks keeps its own generators and prints a message.
  bool generators = false;
  /// Further parts, under names of letters, digits and '_': a GAN's discriminator, an EMA's
  /// averaged weights. The same on all ranks. A scheduler has the name of its optimizer.
  std::map<std::string, torch::nn::Module*> modules = {};
  std::map<std::string, torch::optim::Optimizer*> optimizers = {};
  std::map<std::string, SchedulerState*> schedulers = {};
  /// Any bytes that the program wants to keep: the best accuracy so far, its configuration.
  std::string* data = nullptr;
};

/// Writes rank 0's parts and the number of finished epochs. Creates missing folders. Returns on all
/// ranks when the file is in place.
/// - Throws kInvalidArgument on all ranks if the file could not be written, or if some rank's parts
///   do not fit together. The message has the number and the reason of one such rank. An older file
///   of that name is unchanged then.
/// - If communication is over (kPeerLost, kTransport, kAborted), rank 0 still writes the file
///   before it throws, if it has all parts itself. It does not have them with sharded optimizers or
///   generators.
KOLO_API void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts,
                              std::int64_t epoch);

/// Loads the parts in place on every rank. Returns the `epoch` of save_checkpoint(). The number of
/// ranks may differ from the saved run. Other parts of the file are ignored. Throws
/// kInvalidArgument on all ranks if rank 0 cannot read `path`, if the file is torn, damaged or
/// lacks a part, or if a part does not fit the module or optimizer of some rank. Every rank's parts
/// are unchanged then.
KOLO_API std::int64_t load_checkpoint(const std::filesystem::path& path,
                                      const CheckpointParts& parts);

/// Returns on every rank the path of the intact checkpoint that was saved last in rank 0's folder
/// `folder`. Torn files and files that are not checkpoints are ignored. Returns nullopt without
/// one, also if the folder does not exist. Throws kInvalidArgument on all ranks if rank 0 cannot
/// read the folder.
KOLO_API std::optional<std::filesystem::path> newest_checkpoint(
    const std::filesystem::path& folder);

}  // namespace kolo
