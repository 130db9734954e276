// A random program about the loaders that an Accelerator prepares. Passes over a recipe continue
// from epoch to epoch, end early and resume. Passes over existing loaders also nest. The training
// loop's thread.
#pragma once

#include "tests/bindings/torch/stress/deal.h"
#include "tests/bindings/torch/stress/loader_programs.h"
#include "tests/bindings/torch/stress/numbers.h"

#include <kolo/torch.h>

#include <optional>
#include <string>
#include <vector>

namespace kolo::test {

class PreparedProgram {
 public:
  explicit PreparedProgram(ProgramContext& context);
  void run();

 private:
  using Loader = PreparedLoader<RecipeSource<Numbers>>;
  using Batch = torch::data::Example<>;

  /// The expected values of one step.
  struct Rows {
    std::vector<Ids> ids;               ///< by rank, padding included
    std::vector<std::int64_t> padding;  ///< by rank
    bool are_dealt = false;             ///< one by one, with none missing
  };

  void recipe_pass();
  void choose_epoch(bool within_pass);
  std::optional<Batch> take(std::optional<Loader::Iterator>& at, bool is_first, bool fails);
  void check_loader();
  void draw_failure(const std::vector<Step>& steps);
  bool is_lost(std::size_t step, int rank) const;
  void at_last_batch();
  void accumulate(bool has_last);
  void gather(const Batch& mine, const Rows& rows);
  void gather_scalar(const Batch& mine, const Rows& rows);
  void gather_several(const Batch& mine, const Rows& rows);
  void save();
  void restore();
  Place in_other_world(const std::string& state);
  Loader prepare();
  Place place() const;

  /// A pass over an existing loader. `accumulates`: not within another pass.
  void dealt_pass(bool accumulates);
  template <class L>
  void deal_out(L loader, std::size_t count, std::size_t batch, bool is_random, bool accumulates);

  ProgramContext& context_;
  Dice& dice_;
  const int accumulation_;
  Accelerator accelerator_;
  const DataPlan data_;
  const BatchPlan batch_;
  const std::size_t workers_;
  Numbers numbers_;
  Loader loader_;

  // What the loader must know:
  std::size_t epoch_ = 0;
  bool epoch_is_chosen_ = true;
  Place progress_;
  std::optional<Place> resumes_;
  std::optional<Place> saved_;
  std::string state_;  ///< the saved state
  int passes_ = 0;     ///< number of accumulate() calls
  std::size_t failing_step_ = 0;
  int failing_rank_ = -1;
};

}  // namespace kolo::test
