// A random program about samplers and loaders: worlds that follow each other, of which each goes on
// where the one before was, or anew. A world is that of the processes, or one of other numbers of
// ranks that each process plays alone. The training loop's thread.
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
  /// Where a run was saved.
  struct Saved {
    Place place;
    std::string state;         ///< alike on all processes
    std::string own;           ///< this rank's, of a world of processes
    bool is_in_file = false;   ///< a checkpoint has it, too
    std::string data;          ///< besides in that file
    std::optional<int> world;  ///< whose ranks each have their own state
  };

  DataPlan draw_data();
  LoaderPlan draw_loader();
  void make_world();
  void pass();
  void begin_pass();
  void choose_epoch();
  void do_step(const std::vector<Step>& steps, std::size_t number);
  /// Whether this rank's batch of the step cannot be read and is left out.
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

  /// Where a run that is saved now goes on.
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
  std::vector<Seat> seats_;  ///< of this process
  std::optional<Saved> saved_;

  // What the samplers must know, alike on all ranks.
  std::size_t epoch_ = 0;
  bool epoch_is_chosen_ = true;
  Place progress_;                ///< in the epoch that was dealt out
  std::optional<Place> resumes_;  ///< the next pass

  // Of the pass under way.
  std::size_t failing_step_ = 0;
  int failing_rank_ = -1;
  bool gathers_ = false;
  bool gathers_rows_ = false;  ///< of several numbers
  std::string gather_name_;
  torch::Tensor last_mine_;  ///< of the last step, this rank's
  Ids last_rows_;            ///< and all ranks'
  Meter meter_;
  double sum_ = 0;  ///< of all ranks' numbers that the meter has got
  std::int64_t count_ = 0;
};

}  // namespace kolo::test
