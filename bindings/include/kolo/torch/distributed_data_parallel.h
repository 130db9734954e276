// DistributedDataParallel: a module whose gradients are the averages over the ranks when backward()
// returns. Any LibTorch optimizer then steps as in one process; LBFGS, which decides by the loss,
// where its closure returns kolo::allreduce(loss, {.op = kolo::ReduceOp::kAverage}), or use
// DistributedOptimizer. (After PyTorch's class of the same name: "PyTorch Distributed", Li et al.,
// VLDB 2020: buckets, reverse order, overlap, unused parameters.)
//
//   kolo::DistributedDataParallel ddp(network);
//   torch::optim::AdamW optimizer(ddp.parameters(), 1e-3);
//   torch::mse_loss(ddp.forward(input), target).backward();
//   optimizer.step();
//
// What is defined:
// - The constructor checks that all ranks have the same parameters and buffers and copies rank 0's
//   values to all, of buffers only with broadcast_buffers. Make it after to(device or type), by the
//   same calls in one order on all ranks.
// - Gradients of several backwards without zero_grad() add up; inside no_sync() on this rank alone,
//   to be averaged with the next backward outside.
// - A forward without grad mode or in eval() says nothing to other ranks. A backward does, also
//   after eval() and after a forward of the module's own, unless its forwards, and all in train()
//   since the last backward, ran inside no_sync(). Of several such backwards that are made outside
//   of it, the first is this rank's alone.
// - A parameter that gets no gradient on some rank: with find_unused_parameters its gradient is the
//   average with zeros, or stays as it was where no rank has one. Otherwise backward() throws
//   kMismatch on every rank, naming the parameter and the ranks; the gradients are then of no use.
// - An average counts each rank once. Where ranks have different numbers of samples in a step (64
//   over 3 ranks), weigh_by_samples makes it the average over the samples.
// - A parameter may get other memory later (to(channels_last), torch::load(), set_data()), with
//   other strides, on all ranks or on one: elements meet by their index. Gradients keep the strides
//   of the construction, so change the format of a module before. An optimizer may round the last
//   bits differently where ranks have different strides: change it on all.
// - A parameter that has other sizes, another type or device than at the construction, begins to
//   require a gradient, or is registered since, throws kInvalidArgument on all ranks, naming it and
//   the rank: from forward() on a rank where it is so, from backward() on the others. Make a new
//   DistributedDataParallel then, after the end of this one. So does a buffer, from forward(), of
//   other sizes, type or device, with broadcast_buffers. In eval() backward() throws it.
// - backward() with create_graph throws kUnsupported, for averages are in no graph: a penalty of
//   gradients takes torch::autograd::grad() with create_graph, and a backward() without. A sparse
//   gradient throws it, too. Where only one rank has such, the others name that rank.
// - A backward that an exception ends on some rank when it has some gradients and lacks others has
//   no averages on any: the others' backward() throws, with that rank, once that makes its next
//   forward, which begins with gradients of zero; go on with the next step.
// - Gradients of different steps never meet. A rank that leaves a batch out after its forward (not
// a
//   number, out of memory) is a step ahead, once that output is dropped: the next backward throws
//   kMismatch on all ranks, with their steps. Go on with zero_grad(); all count on from the highest
//   step, so the next ones meet. So a training forward that one rank makes alone, and drops, is an
//   error: make it in eval() or without grad mode. A batch that a rank leaves out before its
//   forward cannot be seen here. What all ranks leave out is no error.
// - A rank that does not come within KOLO_OPERATION_TIMEOUT ends kolo on all, as abort() does.
// - A gradient that comes to a parameter whose turn in this backward is over, on all ranks, is an
//   error on all of them, with that rank; after the end of this backward it ends kolo, as abort()
//   does.
// - Several forwards may precede one backward, which goes through all of them, and a backward may
//   run inside another one (activation checkpointing): the gradients of both are averaged at the
//   end of the outer one. Set static_graph where a parameter gets several gradients then (a part
//   that is computed anew twice, or a layer that two such parts share), or none. Without it, each
//   parameter gets exactly one; find_unused_parameters does not go with it.
// - One backward may go through several modules, each in a DistributedDataParallel of its own and
//   the same ones on every rank, in whatever order autograd reaches them, but in one order those
//   that lie within checkpointed parts.
// - A module may have its layers on several devices (model parallel). A module on one device gets,
//   with several device_ids, a replica on each: its gradients are those of the rank's whole batch,
//   summed over the replicas, before they are averaged over the ranks; with a loss that is a mean,
//   they are averages over devices and ranks. What DataParallel says of forward and buffers holds.
// - Ranks compare what each has of its own, in a message of each backward. The scale of a
//   GradScaler and, within an Accelerator, the optimizers' options and counts of steps: a
//   difference is kMismatch on all ranks, from backward(), with the value's name, the ranks and
//   both values. An optimizer of one's own is not seen, but parameters are: in the second backward,
//   then more and more rarely, at last in each 128th. If ranks have parted, the lowest warns once,
//   and says since when at most. Buffers are not compared, nor is anything while a rank has joined.
// - One DistributedDataParallel per parameter, and no DistributedOptimizer for the same one.
//
// - A bucket on a CUDA device starts when its last gradient has been given to a stream, and after
//   all of them, on whichever streams they are made. After backward() the current stream goes on
//   behind the averages. Layers on the CPU and on this rank's CUDA device may be mixed.
//
// Used by one thread at a time; its hooks run on the thread that calls backward(), and for
// parameters on a CUDA device on autograd's thread for it.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/module_wrapper.h>
#include <kolo/torch/output_tensors.h>
#include <kolo/torch/replicas.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// Until its end, forwards of the module lead to backwards that stay on this rank. (PyTorch's
/// no_sync().) On all ranks alike. It ends before the module's wrapper does.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DdpReducer& reducer) : reducer_(&reducer), before_(reducer.set_local(true)) {}
  ~NoSync() {
    if (reducer_ != nullptr) reducer_->set_local(before_);
  }
  /// So that a std::optional may hold it: of the passes of an accumulation, all but the last.
  NoSync(NoSync&& other) noexcept
      : reducer_(std::exchange(other.reducer_, nullptr)), before_(other.before_) {}
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DdpReducer* reducer_;
  bool before_;
};

/// `M` is a module holder (TORCH_MODULE, torch::nn::Sequential, …) or a shared pointer to a module.
template <class M>
class DistributedDataParallel : public ModuleWrapper<DistributedDataParallel<M>, M> {
  using Wrapper = ModuleWrapper<DistributedDataParallel<M>, M>;

 public:
  /// Collective. Throws on every rank alike: kMismatch naming the parameter or buffer in which the
  /// ranks differ, kInvalidArgument for options that do not fit the module.
  explicit DistributedDataParallel(M module, const DdpOptions& options = {})
      : Wrapper(std::move(module)),
        reducer_(std::make_unique<DdpReducer>(module_->named_parameters().pairs(),
                                              module_->named_buffers().pairs(), options)),
        replicas_(make_replicas(*module_, options)) {}

  /// What the module's forward returns.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    reducer_->before_forward(*module_);
    using Output = decltype(module_->forward(std::forward<Arguments>(arguments)...));
    if constexpr (std::is_void_v<Output>) {
      if (replicas_) raise_not_replicable(*module_);
      module_->forward(std::forward<Arguments>(arguments)...);
    } else {
      auto output = compute<std::decay_t<Output>>(std::forward<Arguments>(arguments)...);
      if (reducer_->wants_outputs()) {
        std::vector<torch::Tensor> tensors;
        const bool complete = append_tensors(output, tensors);
        reducer_->after_forward(tensors, complete);
      }
      return output;
    }
  }

  NoSync no_sync() { return NoSync(*reducer_); }
  /// As DdpReducer::set_sample_count.
  void set_sample_count(std::int64_t samples) { reducer_->set_sample_count(samples); }
  /// As DdpReducer::register_comm_hook.
  void register_comm_hook(CommHook hook) { reducer_->register_comm_hook(std::move(hook)); }
  DdpStats stats() const { return reducer_->stats(); }

 private:
  template <class Output, class... Arguments>
  Output compute(Arguments&&... arguments) {
    if (replicas_) {
      if constexpr (Replicable<decltype(*module_), Arguments...>) {
        return replicas_->forward(pointer_of(module_), arguments...);
      } else {
        raise_not_replicable(*module_);
      }
    }
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  using Wrapper::module_;
  std::unique_ptr<DdpReducer> reducer_;
  std::optional<Replicas> replicas_;
};

}  // namespace kolo
