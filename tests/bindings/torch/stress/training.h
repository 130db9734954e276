// A random training by kolo on the ranks of a set and, step by step, in one process. The training
// loop's thread.
#pragma once

#include "tests/bindings/torch/stress/differs.h"
#include "tests/bindings/torch/stress/model.h"
#include "tests/support/scribbling_child.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

/// Told each action that may take long before the action begins.
using Progress = std::function<void(const std::string& what)>;

GradScaler scaler_of(const Plan& plan);

class Training {
 public:
  /// `set` is this rank's; `folder` is for checkpoints.
  Training(Plan plan, ProcessSet set, bool in_set, std::filesystem::path folder, Progress progress);
  /// Runs all steps. Throws Differs, also for kolo's exceptions.
  void run();
  /// Runs the next step, if there is one. Throws Differs, or kolo's exception.
  bool next();
  int steps_done() const { return step_; }
  /// Skips a batch before the next step. Precondition: can_redo().
  void leave_out();
  /// Skips the next step without the other ranks' knowledge.
  void skip() { ++step_; }
  /// Makes the next step the last one again, without the other ranks.
  void back() { --step_; }
  NetworkImpl& network(std::size_t m) { return *models_.at(m).ours->network(); }
  std::size_t model_count() const { return models_.size(); }
  /// Whether all models are there, and their state can be compared.
  bool is_whole() const { return is_whole_; }

  /// Whether the current step can be repeated after it fails on all ranks.
  bool can_redo() const;
  /// Whether it can after a timeout, too.
  bool can_redo_late() const;
  /// Repeats the step. Throws as next() does.
  void redo();

  // For use after next() has thrown kolo's exception because another rank has failed:
  bool has_join() const { return join_ != nullptr; }
  /// Ends the current join, if any. Throws the failure.
  void leave_join();
  /// Checks that the parameters are those before or after the step. Throws Differs.
  void check_left();
  /// Saves the state as rank 0 still can. Throws Differs, or the failure.
  void save_left();
  /// Makes the step again, which must fail. Throws Differs, or the failure.
  void go_on();
  /// Digest of all parameters and buffers: equal if the ranks' bits are equal.
  std::string digest() const;

 private:
  struct Pair {
    std::unique_ptr<Model> ours;
    std::unique_ptr<Model> alone;
  };
  std::unique_ptr<Model> make(std::size_t m, bool alone, std::uint64_t weights) const;
  void share_weights(std::size_t m);
  /// Gives the parameters' memory other orders or gaps from now on.
  void change_strides(const StepPlan& step);
  void before_step(int number);
  void add_layers(std::size_t m, int step, Model& model);
  void freeze_layers(std::size_t m, int step, Model& model);
  void evaluate();
  void reload(int number);
  void broadcast_states();
  void end_join();
  void step(int number);
  void try_other_rate(int number);
  void try_other_size(int number);
  void try_left_out(int number);
  ScribblingChild::Memory gradients() const;
  void expect_refused(int number, const std::string& reason, const std::function<void()>& undo);
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
  std::vector<std::vector<torch::Tensor>>
      before_;  ///< parameters of `alone` before the step, by model
  bool is_whole_ = true;
  bool alone_ended_ = false;  ///< whether `alone` has made the step
};

}  // namespace kolo::test
