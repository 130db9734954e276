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

class Training {
 public:
  /// `set`: this rank's; `folder`: of checkpoints.
  Training(Plan plan, ProcessSet set, bool in_set, std::filesystem::path folder, Progress progress);
  /// Throws Differs, or what kolo throws.
  void run();
  /// Of all parameters and buffers: equal bits on all ranks.
  std::string digest() const;

 private:
  struct Pair {
    std::unique_ptr<Model> ours;
    std::unique_ptr<Model> alone;
  };
  std::unique_ptr<Model> make(std::size_t m, bool alone, std::uint64_t weights) const;
  void share_weights(std::size_t m);
  void before_step(int number);
  void add_layers(std::size_t m, int step, Model& model);
  void freeze_layers(std::size_t m, int step, Model& model);
  void evaluate();
  void reload(int number);
  void broadcast_states();
  void end_join();
  void step(int number);
  void do_ours(int number);
  void do_alone(int number);
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
};

}  // namespace kolo::test
