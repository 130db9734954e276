// Elastic training: when a rank is lost, the others go on in their own processes, and a process
// that replaces it joins them while they train. (After Horovod's hvd.elastic.) Used by the training
// loop's thread.
//
//   kolo::DistributedOptimizer optimizer(std::move(adamw), model->named_parameters());
//   kolo::elastic::State state(
//       {.module = model.get(), .optimizer = &optimizer, .sampler = &sampler});
//   kolo::elastic::run(state, [&] {  // called anew in each world
//     for (; state.epoch() < epochs; state.next_epoch()) {
//       for (auto& batch : loader) {
//         train(batch);
//         state.commit();
//       }
//     }
//   });
//
// started by `kolo-run -np 4 --min-np 2 --restarts 3 ./trainer`, or with --launcher srun; or by
// hand, where ranks meet in a file (file://) or over InitOptions::store.
//
// What happens when a rank is lost:
// - The next call of kolo fails on all others. run() catches it, waits until all living processes
//   have come, and they make the next world: rank() and size() change, members keep their order.
// - The rank that is furthest gives its state to those that are behind: weights and buffers, the
//   optimizer with its learning rates, schedulers, the scaler, `data`, the sampler's position. A
//   step that one living rank has made is made on all; a step that none has made is made again.
//   Nothing is rolled back, so commit() copies nothing. With a ShardedOptimizer see below.
// - The function is called again. It takes up the epoch where it was.
//
// Rules:
// - commit() ends each step, on all ranks, after the optimizer's step. All that State has may
//   change only between two commits. A step is one call of one optimizer; where several step
//   between two commits (a GAN), a loss in between drops those that were not made.
// - A new process runs the program up to run() by itself, in a world of one: rank() is 0 there.
//   Everything that State has is made before run(), by the same code on all ranks, and everything
//   that depends on rank() or size() within it.
// - An object that belongs to a world (an optimizer of kolo's, DistributedDataParallel) is in State
//   or is made within the function. A ShardedOptimizer that is made within it begins without state.
// - Process sets: those of kolo::split_world(), called before run(), are there in each world under
//   the same handle: for SyncBatchNorm, metrics, sums of a host's ranks. Others end with their
//   world. State refuses an optimizer over a set: its ranks have weights of their own.
// - Within the function let kolo's exceptions pass; catch what your own code throws. An exception
//   without a lost rank leaves run(), and its process, as without elastic training.
// - Batches: with DistributedSamplerOptions::global_batch each step trains on the same samples for
//   any number of ranks; use weigh_by_samples, where it does not divide. An ElasticSampler loses no
//   sample and repeats none. Both count in kolo::data_loader, or LibTorch's loader without workers.
//   After a world that the sampler's batches do not fit, a DistributedSampler without global_batch
//   may repeat as many elements as there are ranks.
// - Other state, such as random generators, stays each process's own.
//
// With a ShardedOptimizer a lost rank takes the newest part of the state with it. So:
// - Ranks make backups in host memory: of its part each rank keeps one copy, and another rank keeps
//   a second one. The other rank is on another host, unless one host has more than half of the
//   ranks. Everything else that State has is in the backup, too.
// - A backup is made when a world begins, by a commit() before new processes are taken in, and by
//   other calls of commit() so that all backups take at most 2 % of the time.
// - After a loss all ranks go back to the newest backup of which all parts exist: the function
//   finds epoch(), progress() and the sampler as they were then. Rank 0 warns with the steps that
//   are made again. Where new processes come, no step is.
// - If a rank and the one that keeps its copy are lost before the next world stands, run() throws
//   kPeerLost with the part that is gone. So save checkpoints, too, if rarely.
#pragma once

#include <kolo/export.h>
#include <kolo/membership.h>
#include <kolo/torch/checkpoint.h>
#include <kolo/torch/world_member.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace kolo::elastic {

/// What training has done so far, and how to give it to another rank.
class KOLO_API State {
 public:
  /// - `parts`: all that the ranks must have alike. The sampler must be one of kolo's; `generators`
  ///   has no effect.
  /// - `members`: further objects of the world, such as a DistributedDataParallel, or a model that
  ///   an Accelerator has prepared. Optimizers of `parts` that are such need not be named.
  /// - All must outlive the State. Throws kInvalidArgument for other samplers, and kUnsupported for
  ///   an optimizer over other ranks than all.
  explicit State(const CheckpointParts& parts, std::vector<WorldMember*> members = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The present epoch, counted from 0. The sampler has it, too.
  std::int64_t epoch() const;
  /// For a run that begins anew from a checkpoint: before run(), with what load_checkpoint()
  /// returns. A sampler that was loaded keeps its position in that epoch.
  void set_epoch(std::int64_t epoch);
  /// Begins the next epoch. On all ranks.
  void next_epoch();
  /// Ends a step. Collective within run() in an elastic job: where new processes wait, it leaves
  /// the function, and run() takes them in. With a ShardedOptimizer it may make a backup.
  void commit();
  /// Number of commits and epochs that were ended, by any process. With a ShardedOptimizer a loss
  /// makes it smaller.
  std::uint64_t progress() const;
  /// Number of this world, from 1; 0 without an elastic job.
  int generation() const;
  /// Called in each further world, once all ranks have the same state and before the function: to
  /// adapt a learning rate to size(), to make what depends on the ranks.
  void on_reset(std::function<void()> callback);

 private:
  friend KOLO_API void run(State& state, const std::function<void()>& train);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls `train` in one world after the other, until it returns.
/// - All ranks begin with rank 0's state.
/// - Without an elastic job (mpirun, srun or torchrun alone, kolo-run without --min-np, ranks that
///   meet at rank 0) it calls `train` once, after rank 0 has said why, and throws what that throws.
/// - Throws kTimeout if no world can be made within KOLO_INIT_TIMEOUT, and kPeerLost if all ranks
///   that had the state, or all copies of a part of it, are gone: begin anew from a checkpoint;
///   kAborted where too few ranks are left and none is started anew. A loss that repeats in three
///   worlds of the same processes without a commit is thrown, too.
KOLO_API void run(State& state, const std::function<void()>& train);

}  // namespace kolo::elastic
