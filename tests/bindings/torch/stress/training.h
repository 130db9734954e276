// A random training, done by kolo on the ranks of a set and in one process besides, step by step.
// The training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/differs.h"
#include "tests/bindings/torch/stress/model.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

/// Told before each thing that may take long.
using Progress = std::function<void(const std::string& what)>;

GradScaler scaler_of(const Plan& plan);

class Training {
 public:
  /// `set`: this rank's; `folder`: of checkpoints.
  Training(Plan plan, ProcessSet set, bool in_set, std::filesystem::path folder, Progress progress);
  /// All steps. Throws Differs, also for what kolo throws.
  void run();
  /// The next step, if there is one. Throws Differs, or what kolo throws.
  bool next();
  int steps_done() const { return step_; }
  /// Leaves out a batch before the next step. Precondition: can_redo().
  void leave_out();
  /// Leaves out the next step, of which the other ranks know nothing.
  void skip() { ++step_; }
  /// Makes the last step again, without the others.
  void back() { --step_; }
  NetworkImpl& network(std::size_t m) { return *models_.at(m).ours->network(); }
  std::size_t model_count() const { return models_.size(); }

  /// Whether the step under way can be made again where it fails on all ranks.
  bool can_redo() const;
  /// Makes it again. Throws as next().
  void redo();

  // After next() has thrown what kolo throws, for another rank has failed:
  bool has_join() const { return join_ != nullptr; }
  /// Ends the join that it may be in. Throws the failure.
  void leave_join();
  /// The parameters are those before the step or behind it. Throws Differs.
  void check_left();
  /// Saves what is here, as rank 0 can. Throws Differs, or the failure.
  void save_left();
  /// The step once more, which must fail. Throws Differs, or the failure.
  void go_on();
  /// Of all parameters and buffers: equal bits on all ranks.
  std::string digest() const;

 private:
  struct Pair {
    std::unique_ptr<Model> ours;
    std::unique_ptr<Model> alone;
  };
  std::unique_ptr<Model> make(std::size_t m, bool alone, std::uint64_t weights) const;
  void share_weights(std::size_t m);
  /// The parameters' memory has other orders, or gaps, from now on.
  void change_strides(const StepPlan& step);
  void before_step(int number);
  void add_layers(std::size_t m, int step, Model& model);
  void freeze_layers(std::size_t m, int step, Model& model);
  void evaluate();
  void reload(int number);
  void broadcast_states();
  void end_join();
  void step(int number);
  void try_apart(int number);
  void do_ours(int number);
  void do_alone(int number);
  void end_alone(const StepPlan& step);
  void remember();
  void do_passes(const StepPlan& step, bool overflows);
  torch::Tensor loss_of(std::size_t m, const PassPlan& pass, bool overflows);
  torch::Tensor loss_alone(std::size_t m, const StepPlan& step, const PassPlan& pass);
  Part part(std::size_t m, const PassPlan& pass, int rank) const;
  void compare(const std::string& when) const;
  void compare_gradients(const StepPlan& step) const;
  void compare(const std::string& what, const torch::Tensor& ours, const torch::Tensor& alone,
               double tolerance) const;

  const Plan plan_;
  const ProcessSet set_;
  const bool in_set_;
  const std::filesystem::path folder_;
  const Progress progress_;
  const int rank_;
  std::vector<Pair> models_;
  GradScaler scaler_;
  std::unique_ptr<Join> join_;
  int step_ = 0;
  std::vector<std::vector<torch::Tensor>> before_;  ///< the step: parameters by model, of `alone`
  bool is_whole_ = true;                            ///< what the models have can be compared
  bool alone_ended_ = false;                        ///< the step
};

}  // namespace kolo::test
