// DistributedDataParallel: a module whose gradients are averages over the ranks when backward()
// returns. (After PyTorch's class of the same name: "PyTorch Distributed", Li et al., VLDB 2020:
// buckets, reverse order, overlap, unused parameters.)
//
//   kolo::DistributedDataParallel ddp(network);
//   torch::optim::AdamW optimizer(ddp.parameters(), 1e-3);
//   optimizer.zero_grad();
//   torch::mse_loss(ddp.forward(input), target).backward();
//   optimizer.step();
//
// Rules:
// - Make it after to(device or type). All ranks make theirs in one order. The constructor checks
//   that all ranks have the same parameters and buffers, and copies rank 0's values to all (buffers
//   only with broadcast_buffers).
// - Any LibTorch optimizer steps as in one process. LBFGS decides by the loss, so its closure
//   returns kolo::allreduce(loss, {.op = kolo::ReduceOp::kAverage}); or use DistributedOptimizer.
// - A parameter has one DistributedDataParallel at most, and no DistributedOptimizer besides.
// - Gradients of several backwards without zero_grad() add up. Inside no_sync() they add up on this
//   rank, and the next backward outside averages the sum.
// - An average counts each rank once. Set weigh_by_samples if ranks have different numbers of
//   samples in a step (64 over 3 ranks).
// - Without find_unused_parameters, a parameter that gets no gradient on some rank is an error:
//   backward() throws kMismatch on every rank, naming the parameter and the ranks. The gradients
//   are then unusable. With it, the gradient is the average with zeros, or stays unchanged if no
//   rank has one.
// - Used by one thread at a time. Its hooks run on the thread that calls backward(), and for
//   parameters on a CUDA device on autograd's thread for the device.
//
// What communicates:
// - A forward communicates only in train() and with grad mode.
// - A backward communicates, also after eval() and after a forward of the module itself. It does
//   not if its forward, and all forwards in train() since the last backward, ran inside no_sync().
//   If several such backwards run outside no_sync(), only the first one stays on this rank.
// - Gradients of different steps never meet. A rank that skips a batch after its forward (NaN, out
//   of memory) is a step ahead, once the output is dropped. The next backward throws kMismatch on
//   all ranks, with their steps. Go on with zero_grad(): all continue from the highest step, so the
//   next steps meet. A step that all ranks skip is no error.
// - So a training forward that only one rank makes, and drops, is an error. Make it in eval() or
//   without grad mode. A batch that a rank skips before its forward cannot be detected here.
// - A rank that does not come within KOLO_OPERATION_TIMEOUT ends kolo on all ranks, as abort()
//   does.
// - An exception may end a backward on one rank when only some of its gradients are ready. Then no
//   rank gets averages. The others' backward() throws and names that rank, once that rank makes its
//   next forward, which begins with gradients of zero. Go on with the next step.
// - A gradient may come for a parameter that is already complete on all ranks in this backward. It
//   is an error on all ranks, with the rank. If it comes after the end of this backward, it ends
//   kolo, as abort() does.
//
// Changes of the module:
// - A parameter may get other memory later (to(channels_last), torch::load(), set_data()), also
//   with other strides, on all ranks or on one. Elements are matched by index. Gradients that
//   are views of buckets keep the strides of the construction, so change the memory format of a
//   module before; others have the parameter's. Change it on all ranks: an optimizer may round the
//   last bits differently where strides differ.
// - These changes of a parameter are errors: other sizes, type or device, requiring a gradient only
//   now, and a new parameter. All ranks throw kInvalidArgument with the parameter and the rank:
//   that rank from forward() (in eval() from backward()), the others from backward(). With
//   broadcast_buffers, forward() throws it for a buffer with other sizes, type or device. Destroy
//   this DistributedDataParallel and make a new one.
//
// Special graphs:
// - backward() with create_graph throws kUnsupported, because averages are in no graph. For a
//   penalty on gradients use torch::autograd::grad() with create_graph, and backward() without. A
//   sparse gradient throws it, too. If only one rank has one of these, the others name that rank.
// - Several forwards may precede one backward that goes through all of them. A backward may run
//   inside another one (activation checkpointing); the end of the outer one averages the gradients
//   of both.
// - Set static_graph if a parameter then gets several gradients, or none: a part that is recomputed
//   twice, or a layer that two recomputed parts share. Without it each parameter gets exactly one.
//   Do not combine such backwards with find_unused_parameters.
// - One backward may go through several modules, each in its own DistributedDataParallel. All ranks
//   use the same modules; autograd may reach them in any order. Those inside checkpointed parts
//   must come in one order.
//
// Devices:
// - A module may have its layers on several devices (model parallel), also on the CPU and this
//   rank's CUDA device.
// - A module on one device gets a replica on each of several device_ids. Gradients are summed over
//   the replicas and so belong to the rank's whole batch. Then they are averaged over the ranks.
//   With a loss that is a mean, they are averages over devices and ranks. The rules of DataParallel
//   for forward and buffers hold.
// - A bucket on a CUDA device starts when its last gradient has been given to a stream, and waits
//   for all its gradients, on any streams. After backward() the current stream waits for the
//   averages.
//
// Comparison: each backward carries a message in which ranks compare what each has of its own.
// - The scale of a GradScaler and, within an Accelerator, the optimizers' options and step counts:
//   a difference throws kMismatch from backward() on all ranks, with the value's name, the ranks
//   and both values. kolo does not see other optimizers.
// - Parameters: compared in the second backward, then ever more rarely, at last in each 128th. If
//   they differ, the lowest rank warns once, and says since when at most.
// - Buffers are not compared. Nothing is compared while a rank has joined.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/module_wrapper.h>
#include <kolo/torch/output_tensors.h>
#include <kolo/torch/replicas.h>
#include <kolo/torch/world_member.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// A guard: until its end, forwards of the module lead to backwards that stay on this rank, as in
/// PyTorch's no_sync(). Use it in the same way on all ranks. It must end before the module's
/// wrapper.
///
///   std::optional<kolo::NoSync> local(ddp.no_sync());
///   for (std::size_t i = 0; i < batches.size(); ++i) {
///     if (i + 1 == batches.size()) local.reset();  // the last backward averages the sum
///     loss_of(ddp.forward(batches[i])).backward();
///   }
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DdpReducer& reducer) : reducer_(&reducer), before_(reducer.set_local(true)) {}
  ~NoSync() {
    if (reducer_ != nullptr) reducer_->set_local(before_);
  }
  /// Movable so that a std::optional can hold it during all passes of an accumulation but the last.
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
class DistributedDataParallel : public ModuleWrapper<DistributedDataParallel<M>, M>,
                                public WorldMember {
  using Wrapper = ModuleWrapper<DistributedDataParallel<M>, M>;

 public:
  /// Collective. Throws on every rank: kMismatch naming the parameter or buffer in which the ranks
  /// differ, kInvalidArgument for options that do not fit the module.
  explicit DistributedDataParallel(M module, const DdpOptions& options = {})
      : Wrapper(std::move(module)),
        reducer_(std::make_unique<DdpReducer>(module_->named_parameters().pairs(),
                                              module_->named_buffers().pairs(), options)),
        replicas_(make_replicas(*module_, options)) {}

  /// Returns the result of the module's forward.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    reducer().before_forward(*module_);
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

  NoSync no_sync() { return NoSync(reducer()); }
  /// As DdpReducer::set_sample_count.
  void set_sample_count(std::int64_t samples) { reducer().set_sample_count(samples); }
  /// As DdpReducer::register_comm_hook.
  void register_comm_hook(CommHook hook) { reducer().register_comm_hook(std::move(hook)); }
  DdpStats stats() const { return reducer().stats(); }

  void leave_world() override { reducer().leave_world(); }
  void enter_world() override { reducer().enter_world(); }

 private:
  DdpReducer& reducer() const {
    static_cast<void>(this->held());
    return *reducer_;
  }

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
