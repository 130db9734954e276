// Accelerator: makes a training loop for one process one for many, by prepare() and backward().
// (After Hugging Face's Accelerate, whose names it uses; hence its many methods.)
//
//   kolo::Accelerator accelerator(argc, argv);
//   auto [model, optimizer, loader] = accelerator.prepare(
//       network, adam, kolo::loader_recipe(data, {.batch_size = 64}));
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     accelerator.backward(torch::nll_loss(model.forward(batch.data), batch.target));
//     optimizer.step();
//   }
//
// - The model is wrapped in DistributedDataParallel, so gradients are averages when backward()
//   returns.
// - The optimizer steps as it is. Without a prepared model it steps on this rank's own gradients.
// - Gradient accumulation: put `auto pass = accelerator.accumulate(model);` around forward,
//   backward and step. Only each n-th pass, and the one with the loader's last batch, sends
//   gradients and steps. With several loaders, the longest one decides. backward() divides the loss
//   by n. Name all models that train in one pass in one call.
// - Mixed precision: forward runs in a half type. With fp16 a GradScaler also scales the loss and
//   skips steps that overflow.
// - Schedulers: see PreparedScheduler. Loaders: see prepared_loader.h.
// - Elastic training: `elastic::State state({.module = network.get(), .optimizer = &adam,
//   .sampler = &loader.sampler()}, {&model});`, and commit() where sync_gradients().
// - Used by the training loop's thread, in the same way on all ranks.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/accelerator_config.h>
#include <kolo/torch/console.h>
#include <kolo/torch/prepared.h>
#include <kolo/torch/prepared_loader.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_optimizer.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/serialize.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

struct AcceleratorOptions {
  bool step_scheduler_with_optimizer = true;  ///< see PreparedScheduler
  DdpOptions ddp = {};
  GradScalerOptions scaler = {};  ///< with fp16
};

/// A pass of accumulate(), which ends with its scope. It must end before its models.
///
///   auto pass = accelerator.accumulate(model);
///   accelerator.backward(torch::nll_loss(model.forward(input), target));
///   optimizer.step();
///   optimizer.zero_grad();
class [[nodiscard]] AccumulatedPass {
 public:
  AccumulatedPass(std::shared_ptr<void> open, std::vector<NoSync> local)
      : open_(std::move(open)), local_(std::move(local)) {}

 private:
  std::shared_ptr<void> open_;  ///< how the Accelerator knows that the pass is open
  std::vector<NoSync> local_;
};

class KOLO_API Accelerator {
 public:
  /// Collective. Calls init() if that was not done. Throws:
  /// - kInvalidArgument for values that do not fit, and kUnsupported for a type of distribution or
  ///   precision that kolo lacks;
  /// - kMismatch on every rank if some rank's configuration has another number of processes than
  ///   there are. Also if ranks differ in accumulation steps, precision, how schedulers step, or,
  ///   with fp16, the options of the scaler.
  explicit Accelerator(const AcceleratorConfig& config = AcceleratorConfig::from_environment(),
                       const AcceleratorOptions& options = {});
  /// Uses AcceleratorConfig::from_flags().
  Accelerator(int argc, const char* const* argv, const AcceleratorOptions& options = {})
      : Accelerator(AcceleratorConfig::from_flags(argc, argv), options) {}

  /// Prepares models, optimizers, loaders, recipes and schedulers, any number in any order. Returns
  /// the prepared ones as a tuple in this order, or a single one by itself. Lvalue arguments, and
  /// the optimizer of a scheduler, must outlive the result.
  template <class... Parts>
  auto prepare(Parts&&... parts) {
    static_assert(!(kSchedules<Parts> || ...) || !(kMovedOptimizer<Parts> || ...),
                  "an optimizer that is moved leaves its scheduler without one: pass the optimizer "
                  "as it is, prepare(model, optimizer, std::move(scheduler)), and keep it");
    if constexpr (sizeof...(Parts) == 1) {
      return (prepare_one(std::forward<Parts>(parts)), ...);
    } else {
      return std::tuple{prepare_one(std::forward<Parts>(parts))...};
    }
  }

  /// Runs backward() of the loss, divided by the accumulation steps, and scaled with fp16. Throws
  /// kMismatch on every rank if it reaches a prepared model and ranks differ in the scale, or (in
  /// the last pass of an accumulation) in options or step counts of prepared optimizers.
  void backward(const torch::Tensor& loss);
  /// Begins a pass of these models. Throws kInvalidArgument while another pass is open: the pass
  /// would count twice, and gradients of one would not be sent when the optimizers step.
  template <class... M>
  AccumulatedPass accumulate(PreparedModel<M>&... models) {
    std::shared_ptr<void> open = count_pass();
    std::vector<NoSync> local;
    if (!sync_gradients()) {
      (local.push_back(models.no_sync()), ...);
    }
    return AccumulatedPass(std::move(open), std::move(local));
  }
  /// Whether this pass is the last one before a step.
  bool sync_gradients() const { return state_->sync_gradients; }
  /// Scales the gradients so that their norm is at most `max_norm`, once they are complete (and
  /// unscaled, with fp16). Returns the norm before scaling; 0 while gradients add up.
  template <class O>
  double clip_grad_norm(PreparedOptimizer<O>& optimizer, double max_norm, double norm_type = 2.0) {
    if (!sync_gradients()) return 0;
    complete_gradients(optimizer.optimizer());
    if constexpr (requires { optimizer.optimizer().state_bytes(); }) {
      return optimizer.optimizer().clip_grad_norm(max_norm, norm_type);
    } else {
      std::vector<torch::Tensor> parameters;
      std::set<const void*> seen;  // a tied weight may be listed twice
      for (const auto& group : optimizer.param_groups()) {
        for (const torch::Tensor& parameter : group.params()) {
          if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
        }
      }
      return torch::nn::utils::clip_grad_norm_(parameters, max_norm, norm_type);
    }
  }
  /// A guard for mixed precision outside a prepared model, e.g. for a loss.
  Autocast autocast() const;

  /// Gathers every rank's rows, in rank order, of a tensor or of each tensor in a tuple, vector, …
  /// A scalar is one row. Collective.
  /// - Throws kMismatch on every rank if ranks pass vectors of different lengths, maps with
  ///   different keys, or an optional that only some have set. It also throws it if a value with
  ///   such parts has a tensor that is undefined on some ranks.
  /// - Throws kInvalidArgument on every rank for any other undefined tensor.
  template <class T>
  T gather(const T& value) const {
    return gather_each(value, {});
  }
  /// Gathers the rows of the batch that the loop received last, without rows that only pad. So over
  /// a pass each element comes once.
  /// - A scalar is kept, unless its whole batch is padding.
  /// - If there are several rows for each row of the batch (tokens of a text), all rows of a
  ///   padding element are dropped. Other numbers of rows are kept whole.
  /// - Rows of a recipe's batches come in the order in which its pass distributes them, if each
  ///   rank has as many rows as its batch. Otherwise they come in rank order.
  /// - For tensors that are not rows of the batch, such as counts by class, use gather(): they may
  ///   have a fitting number of rows by chance.
  template <class T>
  T gather_for_metrics(const T& value) const {
    return gather_each(value, state_->loader_pass());
  }

  /// Reports a decision of this rank alone, for instance to stop early. Every rank then calls
  /// check_trigger() in the same place.
  void set_trigger() { triggered_ = true; }
  /// Whether some rank has called set_trigger() since this last returned true. Collective.
  bool check_trigger();

  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  int process_index() const { return kolo::rank(); }
  int local_process_index() const { return kolo::local_rank(); }
  int num_processes() const { return kolo::size(); }
  torch::Device device() const { return state_->device; }
  /// "no", "fp16" or "bf16".
  const std::string& mixed_precision() const { return precision_; }
  const AcceleratorState& state() const { return *state_; }
  /// The scaler with "fp16", for checkpoints; else null.
  GradScaler* scaler() { return state_->scaler ? &*state_->scaler : nullptr; }

  /// Prints a line on the main process.
  template <class... Args>
  void print(const Args&... args) const {
    kolo::print(args...);
  }
  /// Collective: a barrier.
  void wait_for_everyone() const { barrier(); }
  /// The module that was prepared.
  template <class M>
  M& unwrap_model(PreparedModel<M>& model) const {
    return model.module();
  }
  /// Saves by torch::save on the main process and does nothing on the others, so it may follow
  /// is_main_process(). It replaces an older file when the new one has reached the disk. If the
  /// file cannot be written, it throws kInvalidArgument on the main process only and keeps the
  /// older file. save_checkpoint() informs all ranks.
  template <class T>
  void save(const T& value, const std::string& path) const {
    if (!is_main_process()) return;
    std::ostringstream stream;
    torch::save(value, stream);
    write_saved(path, std::move(stream).str());
  }
  template <class M>
  void save(PreparedModel<M>& model, const std::string& path) const {
    save(model.module(), path);
  }

 private:
  /// Gathers without the rows that only pad the batch of the pass.
  template <class T>
  static T gather_each(const T& value, const LoaderPass& pass) {
    static_assert(is_all_tensors<T>(),
                  "this gathers tensors, Examples of them, and vectors, ordered maps, optionals, "
                  "tuples and pairs of such; make a number a tensor: torch::tensor(value)");
    if constexpr (is_all_tensors<T>()) {
      std::string parts;
      append_parts(value, parts);
      if constexpr (has_varying_parts<T>()) {
        check_same_parts(parts);
      } else if (parts.find('-') != std::string::npos) {
        refuse_undefined();
      }
    }
    return map_tensors(value,
                       [&pass](const torch::Tensor& tensor) { return gather_rows(tensor, pass); });
  }

  template <class T>
  static constexpr bool kSchedules =
      std::is_base_of_v<torch::optim::LRScheduler, std::remove_cvref_t<T>> ||
      std::is_base_of_v<torch::optim::ReduceLROnPlateauScheduler, std::remove_cvref_t<T>>;
  template <class T>
  static constexpr bool kMovedOptimizer =
      !std::is_lvalue_reference_v<T> &&
      std::is_base_of_v<torch::optim::Optimizer, std::remove_cvref_t<T>>;

  template <class T>
  auto prepare_one(T&& part) {
    using Part = std::remove_cvref_t<T>;
    if constexpr (std::is_base_of_v<torch::optim::Optimizer, Part>) {
      return PreparedOptimizer<Part>(held(std::forward<T>(part)), state_);
    } else if constexpr (kSchedules<T>) {
      return PreparedScheduler<Part>(held(std::forward<T>(part)), state_);
    } else if constexpr (requires { part->named_parameters(); }) {
      part->to(device());
      return PreparedModel<Part>(part, options_.ddp, state_);
    } else if constexpr (requires { typename Part::IsRecipe; }) {
      return PreparedLoader(RecipeSource(std::forward<T>(part)), state_);
    } else if constexpr (requires { *part->begin(); }) {
      using Loader = std::remove_reference_t<decltype(*part)>;
      const auto owner = held(std::forward<T>(part));
      return PreparedLoader(DealtSource<Loader>({owner, &**owner}), state_);
    } else {
      static_assert(
          requires { *part.begin(); },
          "prepare() takes models, optimizers, schedulers, loaders and loader recipes");
      return PreparedLoader(DealtSource<Part>(held(std::forward<T>(part))), state_);
    }
  }

  std::shared_ptr<void> count_pass();
  void complete_gradients(torch::optim::Optimizer& optimizer);
  static void write_saved(const std::string& path, const std::string& bytes);
  static void check_same_parts(const std::string& parts);
  static void refuse_undefined();
  static torch::Tensor gather_rows(const torch::Tensor& tensor, const LoaderPass& pass);

  AcceleratorOptions options_;
  std::string precision_;
  bool triggered_ = false;
  std::shared_ptr<AcceleratorState> state_ = std::make_shared<AcceleratorState>();
};

}  // namespace kolo
