// A random program about samplers and loaders. Worlds follow each other; each continues where the
// one before stopped, or starts anew. A world consists of the processes, or of any number of ranks
// that each process plays alone. The training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/loader_programs.h"
#include "tests/bindings/torch/stress/seat.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo::test {

class SamplerProgram {
 public:
  explicit SamplerProgram(ProgramContext& context);
  void run();

 private:
  /// The place at which a run was saved.
  struct Saved {
    Place place;
    std::string state;         ///< equal on all processes
    std::string own;           ///< this rank's own, in a world of processes
    bool is_in_file = false;   ///< whether a checkpoint has the state, too
    std::string data;          ///< further data in this file
    std::optional<int> world;  ///< the world whose ranks each have their own state
  };

  DataPlan draw_data();
  LoaderPlan draw_loader();
  void make_world();
  void pass();
  void begin_pass();
  void choose_epoch();
  void do_step(const std::vector<Step>& steps, std::size_t number);
  /// Whether this rank's batch of the step cannot be read and is skipped.
  bool is_lost(std::size_t step, int rank) const;
  void gather(const torch::Tensor& mine, const Ids& right);
  void end_pass(const std::vector<Step>& steps);
  void undo_step(const Place& before);
  void sync(int root);
  void save();
  void restore();
  void expect_refused(const Saved& from);
  void went_on_at(const Place& place);
  void check_seats();

  /// Where a run that is saved now would continue.
  Place place() const;
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + dice_.below(static_cast<std::int64_t>(values.size())));
  }

  ProgramContext& context_;
  Dice& dice_;
  const DataPlan data_;
  LoaderPlan loader_;
  bool is_real_ = false;  ///< the world is that of the processes
  int ranks_ = 1;
  std::vector<Seat> seats_;  ///< this process's ranks
  std::optional<Saved> saved_;

  // What the samplers must know, the same on all ranks:
  std::size_t epoch_ = 0;
  bool epoch_is_chosen_ = true;
  Place progress_;                ///< in the epoch that was dealt out
  std::optional<Place> resumes_;  ///< place where the next pass begins

  // About the current pass:
  std::size_t failing_step_ = 0;
  int failing_rank_ = -1;
  bool gathers_ = false;
  bool gathers_rows_ = false;  ///< rows of several numbers
  std::string gather_name_;
  torch::Tensor last_mine_;  ///< rows of the last step, on this rank
  Ids last_rows_;            ///< rows of the last step, on all ranks
  Meter meter_;
  double sum_ = 0;  ///< sum of all ranks' numbers that the meter has got
  std::int64_t count_ = 0;
};

}  // namespace kolo::test
