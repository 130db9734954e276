#include "tests/bindings/torch/stress/prepared_program.h"

#include "tests/bindings/torch/stress/differs.h"
#include "tests/bindings/torch/stress/seat.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace kolo::test {
namespace {

Accelerator make_accelerator(int accumulation) {
  AcceleratorConfig config;
  config.gradient_accumulation_steps = accumulation;
  config.use_cpu = true;
  return Accelerator(config);
}

DataPlan draw_data(Dice& dice) {
  DataPlan data;
  data.count = static_cast<std::size_t>(dice.one_in(4) ? dice.below(8) : dice.below(60));
  data.shuffle = dice.one_in(2);
  data.seed = dice.one_in(3) ? dice.salt() : static_cast<std::uint64_t>(dice.below(5));
  data.drop_last = dice.one_in(3);
  return data;
}

/// Elements as they were dealt out, one by one, or by rank.
Ids in_order(const std::vector<Ids>& ids, const std::vector<std::int64_t>& padding, bool dealt) {
  Ids all;
  if (!dealt) {
    for (std::size_t rank = 0; rank < ids.size(); ++rank)
      all.insert(all.end(), ids[rank].begin(), ids[rank].end() - padding[rank]);
    return all;
  }
  for (std::size_t row = 0; row < ids[0].size(); ++row)
    for (std::size_t rank = 0; rank < ids.size(); ++rank)
      if (row + static_cast<std::size_t>(padding[rank]) < ids[rank].size())
        all.push_back(ids[rank][row]);
  return all;
}

void expect_rows(const char* what, const torch::Tensor& rows, const Ids& right) {
  if (const Ids got = ids_of(rows); got != right)
    throw Differs(fmt::format("gather_for_metrics of {} gives {} instead of {}", what, text_of(got),
                              text_of(right)));
}

torch::data::Example<> without_rows() {
  return {torch::empty({0, 2}, torch::kInt64), torch::empty({0}, torch::kInt64)};
}

}  // namespace

PreparedProgram::PreparedProgram(ProgramContext& context)
    : context_(context),
      dice_(context.dice),
      accumulation_(1 + static_cast<int>(dice_.below(3))),
      accelerator_(make_accelerator(accumulation_)),
      data_(draw_data(dice_)),
      batch_({.size = static_cast<std::size_t>(1 + dice_.below(6)), .drop_last = data_.drop_last}),
      workers_(static_cast<std::size_t>(dice_.below(4))),
      numbers_(data_.count),
      loader_(prepare()) {}

PreparedProgram::Loader PreparedProgram::prepare() {
  numbers_ = Numbers(data_.count);
  return accelerator_.prepare(loader_recipe(numbers_, {.batch_size = batch_.size,
                                                       .shuffle = data_.shuffle,
                                                       .seed = data_.seed,
                                                       .workers = workers_,
                                                       .drop_last = data_.drop_last}));
}

Place PreparedProgram::place() const {
  if (progress_.epoch == epoch_) return progress_;
  return resumes_.value_or(Place{.epoch = epoch_});
}

void PreparedProgram::check_loader() {
  const auto epoch = loader_.sampler().epoch();
  const bool is_chosen = loader_.sampler().epoch_is_chosen();
  if (epoch != epoch_ || is_chosen != epoch_is_chosen_)
    throw Differs(fmt::format("the sampler is in epoch {}{} instead of {}{}", epoch,
                              is_chosen ? ", chosen" : "", epoch_,
                              epoch_is_chosen_ ? ", chosen" : ""));
  const auto whole = deal(data_, {.epoch = epoch_}, context_.size, batch_);
  if (loader_.size() != whole.size())
    throw Differs(fmt::format("size() is {} instead of {}", loader_.size(), whole.size()));
}

void PreparedProgram::choose_epoch(bool within_pass) {
  auto epoch = static_cast<std::size_t>(dice_.below(4));
  // It is unspecified whether the current epoch is then saved as its rest or as a whole.
  if (within_pass && epoch == progress_.epoch) ++epoch;
  context_.note(fmt::format("epoch {} is chosen", epoch));
  if (dice_.one_in(2)) {
    loader_.set_epoch(epoch);
  } else {
    loader_.sampler().set_epoch(epoch);
  }
  if (epoch != epoch_) resumes_.reset();
  epoch_ = epoch;
  epoch_is_chosen_ = true;
}

void PreparedProgram::draw_failure(const std::vector<Step>& steps) {
  numbers_.make_unreadable(kNone);
  failing_rank_ = -1;
  if (steps.empty() || !dice_.one_in(5)) return;
  failing_step_ = static_cast<std::size_t>(
      dice_.one_in(2) ? 0 : dice_.below(static_cast<std::int64_t>(steps.size())));
  failing_rank_ = static_cast<int>(dice_.below(context_.size));
  context_.note(fmt::format("rank {} cannot read batch {}", failing_rank_, failing_step_ + 1));
  if (failing_rank_ == context_.rank)
    numbers_.make_unreadable(
        steps[failing_step_].ids[static_cast<std::size_t>(failing_rank_)].back());
}

bool PreparedProgram::is_lost(std::size_t step, int rank) const {
  return step > 0 && step == failing_step_ && rank == failing_rank_;
}

std::optional<PreparedProgram::Batch> PreparedProgram::take(std::optional<Loader::Iterator>& at,
                                                            bool is_first, bool fails) {
  const auto ask = [&] {
    if (is_first) {
      at.reset();
      at.emplace(loader_.begin());
    } else {
      ++*at;
    }
  };
  if (!fails) {
    ask();
  } else {
    try {
      ask();
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("unreadable") == std::string::npos) throw;
      numbers_.make_unreadable(kNone);
      if (!is_first) return without_rows();
      ask();
      fails = false;
    }
    if (fails) throw Differs("a batch came that cannot be read");
  }
  return *at == loader_.end() ? std::optional<Batch>() : **at;
}

void PreparedProgram::at_last_batch() {
  if (!epoch_is_chosen_) {
    ++epoch_;
    resumes_.reset();
  }
  epoch_is_chosen_ = true;
}

void PreparedProgram::accumulate(bool has_last) {
  const auto pass = accelerator_.accumulate();
  passes_ = has_last ? 0 : passes_ + 1;
  const bool right = passes_ % accumulation_ == 0;
  if (accelerator_.sync_gradients() != right)
    throw Differs(fmt::format("sync_gradients() is {} in pass {} of {}{}", !right, passes_,
                              accumulation_, has_last ? ", the loader's last" : ""));
}

void PreparedProgram::gather(const Batch& mine, const Rows& rows) {
  context_.note("gathering a batch");
  const Ids right = in_order(rows.ids, rows.padding, rows.are_dealt);
  switch (dice_.below(4)) {
    case 0:
      return expect_rows("a tensor", accelerator_.gather_for_metrics(mine.target), right);
    case 1: {
      const auto both = accelerator_.gather_for_metrics(std::tuple(mine.target, mine.data));
      expect_rows("a tuple's first", std::get<0>(both), right);
      return expect_rows("a tuple's second", std::get<1>(both).select(1, 0), right);
    }
    case 2: {
      const Batch all = accelerator_.gather_for_metrics(mine);
      expect_rows("a batch's data", all.data.select(1, 0), right);
      return expect_rows("a batch's target", all.target, right);
    }
    default:
      return expect_rows("a vector",
                         accelerator_.gather_for_metrics(std::vector{mine.target}).at(0), right);
  }
}

void PreparedProgram::gather_scalar(const Batch& mine, const Rows& rows) {
  context_.note("gathering a number");
  Ids right;
  for (std::size_t rank = 0; rank < rows.ids.size(); ++rank)
    if (rows.padding[rank] < std::ssize(rows.ids[rank]))
      right.push_back(
          std::accumulate(rows.ids[rank].begin(), rows.ids[rank].end(), std::int64_t{0}));
  expect_rows("a number", accelerator_.gather_for_metrics(mine.target.sum()), right);
}

/// Two rows per batch row, gathered by gather(), which drops nothing.
void PreparedProgram::gather_several(const Batch& mine, const Rows& rows) {
  context_.note("gathering several rows for each of the batch");
  Ids twice;
  Ids all;
  for (std::size_t rank = 0; rank < rows.ids.size(); ++rank) {
    const Ids& ids = rows.ids[rank];
    all.insert(all.end(), ids.begin(), ids.end());
    for (auto id = ids.begin(); id != ids.end() - rows.padding[rank]; ++id)
      twice.insert(twice.end(), 2, *id);
  }
  expect_rows("several rows", accelerator_.gather_for_metrics(mine.target.repeat_interleave(2)),
              twice);
  if (const Ids got = ids_of(accelerator_.gather(mine.target)); got != all)
    throw Differs(fmt::format("gather gives {} instead of {}", text_of(got), text_of(all)));
}

void PreparedProgram::recipe_pass() {
  if (dice_.one_in(3)) choose_epoch(false);
  if (!epoch_is_chosen_) {
    ++epoch_;
    resumes_.reset();
  }
  const Place from = resumes_.value_or(Place{.epoch = epoch_});
  const std::vector<Step> steps = deal(data_, from, context_.size, batch_);
  const auto count = static_cast<std::int64_t>(steps.size());
  const bool is_left = count > 0 && dice_.one_in(2);
  const auto stop = is_left ? 1 + dice_.below(count) : count;
  const auto saves_at = dice_.one_in(2) && stop > 0 ? 1 + dice_.below(stop) : 0;
  const auto chooses_at = dice_.one_in(8) && stop > 0 ? 1 + dice_.below(stop) : 0;
  context_.note(fmt::format("a pass of {} steps from {}, {}", count, from.text(),
                            is_left ? fmt::format("left after {}", stop) : "whole"));
  draw_failure(steps);
  const bool accumulates = failing_rank_ < 0 && dice_.one_in(2);
  progress_ = from;
  resumes_.reset();
  epoch_is_chosen_ = false;
  std::optional<Loader::Iterator> at;
  for (std::int64_t i = 0; i < stop; ++i) {
    const Step& step = steps[static_cast<std::size_t>(i)];
    const bool is_last = i + 1 == count;
    const auto number = static_cast<std::size_t>(i);
    const bool any_lost = failing_rank_ >= 0 && is_lost(number, failing_rank_);
    const bool fails = number == failing_step_ && context_.rank == failing_rank_;
    const auto batch = take(at, i == 0, fails);
    Rows rows{.ids = step.ids, .padding = step.padding, .are_dealt = !any_lost};
    if (any_lost) {
      rows.ids[static_cast<std::size_t>(failing_rank_)].clear();
      rows.padding[static_cast<std::size_t>(failing_rank_)] = 0;
    }
    const Ids& right = rows.ids[static_cast<std::size_t>(context_.rank)];
    if (!batch || ids_of(batch->target) != right)
      throw Differs(fmt::format("batch {} is {} instead of {}", i + 1,
                                batch ? text_of(ids_of(batch->target)) : "none", text_of(right)));
    progress_ = step.after;
    if (is_last) at_last_batch();
    // The rank that could not read the last batch does not know yet that it was the last.
    if (!(is_last && any_lost)) check_loader();
    if (accumulates) accumulate(is_last);
    if (dice_.one_in(8)) dealt_pass(false);
    if (dice_.one_in(2)) gather(*batch, rows);
    if (dice_.one_in(4) && !any_lost) gather_scalar(*batch, rows);
    if (dice_.one_in(4)) gather_several(*batch, rows);
    if (i + 1 == chooses_at && !any_lost) choose_epoch(true);
    if (i + 1 == saves_at && !any_lost) save();
  }
  if (is_left) return;
  if (take(at, count == 0, false)) throw Differs("a batch came behind the last one");
  if (count == 0) at_last_batch();
  check_loader();
}

void PreparedProgram::save() {
  context_.note(fmt::format("saving: {}", place().text()));
  save_checkpoint(context_.folder / "prepared.pt", {.sampler = &loader_.sampler()}, 0);
  saved_ = place();
  state_ = saved(loader_.sampler());
}

/// Loads the state of a world with another number of ranks into the loader, for one step.
Place PreparedProgram::in_other_world(const std::string& state) {
  const int ranks = 1 + static_cast<int>(dice_.below(6));
  const int rank = static_cast<int>(dice_.below(ranks));
  context_.note(fmt::format("rank {} of {} goes on for a step", rank, ranks));
  DistributedSampler sampler(data_.count, {.shuffle = data_.shuffle,
                                           .seed = data_.seed,
                                           .drop_last = data_.drop_last,
                                           .rank = rank,
                                           .size = ranks});
  load(sampler, state);
  sampler.reset();
  const Place from = resumed(data_, *saved_, ranks);
  const auto steps = deal(data_, from, ranks, {.size = batch_.size});
  const auto got = sampler.next(batch_.size);
  const Ids mine = got ? Ids(got->begin(), got->end()) : Ids();
  const Ids right = steps.empty() ? Ids() : steps[0].ids[static_cast<std::size_t>(rank)];
  if (mine != right)
    throw Differs(fmt::format("rank {} of {} gets {} instead of {}", rank, ranks, text_of(mine),
                              text_of(right)));
  load(loader_.sampler(), saved(sampler));
  return steps.empty() ? from : steps[0].after;
}

void PreparedProgram::restore() {
  context_.note(fmt::format("going on at {}", saved_->text()));
  if (dice_.one_in(2)) loader_ = prepare();
  Place place = *saved_;
  if (dice_.one_in(3)) {
    place = in_other_world(state_);
  } else {
    load_checkpoint(context_.folder / "prepared.pt", {.sampler = &loader_.sampler()});
  }
  progress_ = resumed(data_, place, context_.size);
  resumes_ = progress_;
  epoch_ = progress_.epoch;
  epoch_is_chosen_ = true;
  check_loader();
}

void PreparedProgram::run() {
  context_.note(
      fmt::format("a recipe: {}, batches of {}, {} workers", data_.text(), batch_.size, workers_));
  const auto passes = 1 + dice_.below(5);
  for (int pass = 0; pass < passes; ++pass) {
    if (saved_ && dice_.one_in(3)) restore();
    if (dice_.one_in(4)) {
      dealt_pass(dice_.one_in(2));
    } else {
      recipe_pass();
    }
  }
}

void run_prepared_program(ProgramContext& context) { PreparedProgram(context).run(); }

}  // namespace kolo::test
