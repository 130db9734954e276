// Accelerator: a training loop for one process becomes one for many by prepare() and backward().
// (After Hugging Face's Accelerate, whose names it has.)
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
// What is defined:
// - The model is wrapped in DistributedDataParallel, so gradients are averages when backward()
//   returns. The optimizer is stepped as it is; one without a prepared model steps on this rank's
//   own gradients.
// - Gradient accumulation: with `auto pass = accelerator.accumulate(model);` around forward,
//   backward and step, only each n-th pass, and the loader's last (of several the longest's), sends
//   gradients and steps;
//   backward() divides the loss by n. Models that train in one pass are named in one call.
// - Mixed precision: forward runs in a half type, and with fp16 a GradScaler scales the loss and
//   leaves out steps that overflow.
// - Schedulers: see PreparedScheduler. Loaders: see prepared_loader.h.
//
// The training loop's thread, on all ranks alike.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/accelerator_config.h>
#include <kolo/torch/console.h>
#include <kolo/torch/prepared.h>
#include <kolo/torch/prepared_loader.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_optimizer.h>
#include <torch/torch.h>

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

/// A pass of accumulate(); ends at its end of scope, before its models do.
class [[nodiscard]] AccumulatedPass {
 public:
  AccumulatedPass(std::shared_ptr<void> open, std::vector<NoSync> local)
      : open_(std::move(open)), local_(std::move(local)) {}

 private:
  std::shared_ptr<void> open_;  ///< what the Accelerator sees of it
  std::vector<NoSync> local_;
};

class KOLO_API Accelerator {
 public:
  /// Calls init() unless that was done. Collective. Throws kInvalidArgument for values that do not
  /// fit, kUnsupported for a type of distribution or precision that kolo has not; and on every rank
  /// kMismatch, if another number of processes has met than some rank's configuration says, or
  /// ranks differ in accumulation steps, precision, how schedulers step, or, with fp16, the options
  /// of the scaler.
  explicit Accelerator(const AcceleratorConfig& config = AcceleratorConfig::from_environment(),
                       const AcceleratorOptions& options = {});
  /// With AcceleratorConfig::from_flags().
  Accelerator(int argc, const char* const* argv, const AcceleratorOptions& options = {})
      : Accelerator(AcceleratorConfig::from_flags(argc, argv), options) {}

  /// Models, optimizers, loaders, recipes and schedulers, any of them in any order; all prepared,
  /// in that order, as a tuple, or by itself if it is one. Those passed as lvalues must outlive the
  /// result (a scheduler's optimizer, too).
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

  /// backward() of the loss, divided by the accumulation steps, and scaled with fp16. Throws
  /// kMismatch on every rank where it reaches a prepared model and ranks differ in the scale, or in
  /// options or counts of steps of prepared optimizers (in the last pass of an accumulation).
  void backward(const torch::Tensor& loss);
  /// Begins a pass of these models. Throws kInvalidArgument while another one is open: it would
  /// count twice, and one's gradients would not be sent when the optimizers step.
  template <class... M>
  AccumulatedPass accumulate(PreparedModel<M>&... models) {
    std::shared_ptr<void> open = count_pass();
    std::vector<NoSync> local;
    if (!sync_gradients()) {
      (local.push_back(models.no_sync()), ...);
    }
    return AccumulatedPass(std::move(open), std::move(local));
  }
  /// Whether this pass is the last before a step.
  bool sync_gradients() const { return state_->sync_gradients; }
  /// Scales the gradients so that their norm is at most `max_norm`, once they are complete (and
  /// unscaled, with fp16). Returns the norm before; 0 while they add up.
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
  /// Mixed precision for what is computed outside of a prepared model, e.g. a loss. A guard.
  Autocast autocast() const;

  /// Every rank's rows, by rank, of a tensor or of each in a tuple, vector, …; a scalar is a row.
  /// Collective. Throws kMismatch on every rank if they pass vectors of other lengths, maps with
  /// other keys, an optional that not all have set, or, in a value that has one of these, a tensor
  /// that is undefined on some; kInvalidArgument on every rank for any other one that is undefined.
  template <class T>
  T gather(const T& value) const {
    return gather_each(value, {});
  }
  /// The same for the rows of the batch that the loop has got last, without those that only fill
  /// up: over a pass each element comes once. A scalar stays, unless its whole batch fills up; of
  /// several rows for each of the batch's (tokens of a text) all go that are of one that fills up;
  /// other numbers of rows stay as they are. Of a recipe's batches they come in the order in which
  /// its pass deals them out, where each rank's are as many as its batch's; else by rank. What is
  /// no row of the batch, as counts by class, takes gather(): it may have as many rows by chance.
  template <class T>
  T gather_for_metrics(const T& value) const {
    return gather_each(value, state_->loader_pass());
  }

  /// A rank that decides something alone, as to stop early, says so here and goes on;
  /// check_trigger(), on every rank in the same place, tells all.
  void set_trigger() { triggered_ = true; }
  /// Whether some rank has called set_trigger() since this was last true. Collective.
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
  /// With "fp16", for checkpoints; else null.
  GradScaler* scaler() { return state_->scaler ? &*state_->scaler : nullptr; }

  /// A line, on the main process.
  template <class... Args>
  void print(const Args&... args) const {
    kolo::print(args...);
  }
  /// Collective.
  void wait_for_everyone() const { barrier(); }
  /// The module that was prepared.
  template <class M>
  M& unwrap_model(PreparedModel<M>& model) const {
    return model.module();
  }
  /// torch::save on the main process; nothing on the others, so it may stand behind
  /// is_main_process(). An older file is replaced when the new one has reached the disk. Throws
  /// kInvalidArgument on the main process alone if it cannot be written, and leaves the older one;
  /// save_checkpoint() tells all ranks.
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
  /// Without the rows that only fill up the batch of the pass.
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
