// Checkpoints: one file with the model as torch::save writes it, and in the same archive what a run
// needs to go on. A program without kolo reads the model by torch::load(module, path), which leaves
// the rest alone. Collective: only rank 0 touches the file system, so the others need not share it.
//
// Tensors are saved as the CPU has them and loaded to where the module's and optimizer's are, so
// that a run may go on with other devices.
//
// The file is a ZIP archive of LibTorch whose comment holds its length, a checksum and the time, so
// a torn or damaged file is noticed. It replaces an older one in one step, after it has reached the
// disk: a crash leaves the old or the new. Symlinks are followed; a device or a pipe is refused.
// The training loop's thread.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/grad_scaler.h>
#include <kolo/torch/schedulers.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace kolo {

/// What a checkpoint holds; null is left out. Pass the module that DistributedDataParallel wraps,
/// not the wrapper.
struct CheckpointParts {
  torch::nn::Module* module = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;
  /// Needs the optimizer, which has the learning rates.
  SchedulerState* scheduler = nullptr;
  /// In the middle of an epoch: of a kolo::data_loader, or of LibTorch's loader without workers.
  /// With workers that one has asked the sampler for batches that the loop has not got, which the
  /// run that goes on would leave out.
  torch::data::samplers::Sampler<>* sampler = nullptr;
  GradScaler* scaler = nullptr;  ///< e.g. Accelerator::scaler()
  /// Each rank's generators, of the CPU and of kolo::device(), from which dropout, torch::rand()
  /// and their like draw by default. Alike on all ranks. A job of another number of ranks leaves
  /// its generators alone and says so.
  bool generators = false;
  /// Further ones under names of letters, digits and '_': a GAN's discriminator, an EMA's averaged
  /// weights. Alike on all ranks. A scheduler has the name of its optimizer.
  std::map<std::string, torch::nn::Module*> modules = {};
  std::map<std::string, torch::optim::Optimizer*> optimizers = {};
  std::map<std::string, SchedulerState*> schedulers = {};
  /// What the program likes to find again, any bytes: the best accuracy so far, its configuration.
  std::string* data = nullptr;
};

/// Writes rank 0's parts and the number of epochs that are done; makes missing folders. Returns on
/// all ranks when the file is in place. Throws kInvalidArgument on all ranks, with the number and
/// the reason of one, if it could not be written, or that rank's parts do not fit together; an
/// older file of the name is then untouched. Where communication is over (kPeerLost, kTransport,
/// kAborted), rank 0 writes the file before it throws, if it has all of it: without sharded
/// optimizers and generators.
KOLO_API void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts,
                              std::int64_t epoch);

/// Loads the parts on every rank, in place, whatever the number of ranks was when it was saved;
/// returns the `epoch` of save_checkpoint(). What the file holds besides is left alone. Throws
/// kInvalidArgument on all ranks if rank 0 cannot read `path`, the file is torn or damaged, lacks a
/// part, or a part does not fit the module or optimizer of some rank; every rank's parts are then
/// as they were before.
KOLO_API std::int64_t load_checkpoint(const std::filesystem::path& path,
                                      const CheckpointParts& parts);

/// The whole checkpoint in rank 0's folder `folder` that was saved last, for every rank. Files that
/// are torn or no checkpoints do not count; none, also without the folder: nullopt. Throws
/// kInvalidArgument on all ranks if rank 0 cannot read the folder.
KOLO_API std::optional<std::filesystem::path> newest_checkpoint(
    const std::filesystem::path& folder);

}  // namespace kolo
