#include "tests/bindings/torch/stress/sampler_program.h"

#include "tests/bindings/torch/stress/differs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace kolo::test {

SamplerProgram::SamplerProgram(ProgramContext& context)
    : context_(context), dice_(context.dice), data_(draw_data()) {}

DataPlan SamplerProgram::draw_data() {
  DataPlan data;
  data.kind = one_of({Kind::kTraining, Kind::kTraining, Kind::kEvaluation, Kind::kElastic});
  data.count = static_cast<std::size_t>(dice_.one_in(5) ? dice_.below(8) : dice_.below(70));
  data.shuffle = dice_.one_in(2);
  data.seed = dice_.one_in(3) ? dice_.salt() : static_cast<std::uint64_t>(dice_.below(5));
  if (data.kind == Kind::kTraining) {
    data.drop_last = dice_.one_in(3);
    if (dice_.one_in(3)) data.global_batch = static_cast<std::size_t>(6 + dice_.below(9));
  }
  return data;
}

LoaderPlan SamplerProgram::draw_loader() {
  LoaderPlan loader;
  loader.stock = dice_.one_in(4);
  loader.batch.size =
      static_cast<std::size_t>(dice_.one_in(8) ? 1 + dice_.below(40) : 1 + dice_.below(6));
  loader.batch.drop_last = dice_.one_in(4);
  if (data_.global_batch > 0) loader.batch = {};
  const auto workers = dice_.one_in(2) ? 0 : 1 + dice_.below(is_real_ || ranks_ < 3 ? 3 : 1);
  if (!loader.stock) loader.workers = static_cast<std::size_t>(workers);
  loader.hurries = loader.workers > 0 && dice_.one_in(4);
  loader.prefetch = static_cast<std::size_t>(1 + dice_.below(3));
  return loader;
}

void SamplerProgram::make_world() {
  is_real_ = context_.size > 1 ? !dice_.one_in(3) : dice_.one_in(3);
  ranks_ = is_real_ ? context_.size : 1 + static_cast<int>(dice_.below(6));
  loader_ = draw_loader();
  const bool is_this_rank = is_real_ && dice_.one_in(2);
  context_.note(fmt::format("a world of {} {} with {}", ranks_,
                            is_real_ ? "processes" : "ranks that are played", loader_.text()));
  seats_.clear();
  for (int rank = 0; rank < ranks_; ++rank)
    if (!is_real_ || rank == context_.rank)
      seats_.emplace_back(data_, loader_, rank, ranks_, is_this_rank);
  epoch_ = 0;
  epoch_is_chosen_ = true;
  progress_ = {};
  resumes_.reset();
}

Place SamplerProgram::place() const {
  if (progress_.epoch == epoch_) return progress_;
  return resumes_.value_or(Place{.epoch = epoch_});
}

void SamplerProgram::check_seats() {
  for (Seat& seat : seats_) seat.check(place(), epoch_is_chosen_);
}

void SamplerProgram::choose_epoch() {
  const auto epoch = static_cast<std::size_t>(dice_.below(3));
  context_.note(fmt::format("epoch {} is chosen", epoch));
  if (epoch != epoch_) resumes_.reset();
  const bool is_other = epoch != epoch_;
  epoch_ = epoch;
  epoch_is_chosen_ = true;
  for (Seat& seat : seats_) seat.sampler().set_epoch(epoch);
  // For the same epoch again it is unspecified whether this is saved as an end or as a start.
  if (is_other && progress_.epoch != epoch_) {
    check_seats();
    if (dice_.one_in(4)) save();
  }
}

void SamplerProgram::begin_pass() {
  const Place from = resumes_.value_or(Place{.epoch = epoch_});
  const std::vector<Step> steps = deal(data_, from, ranks_, loader_.batch);
  failing_rank_ = -1;
  const std::int64_t slow = loader_.hurries ? dice_.below(30) : kNone;
  for (Seat& seat : seats_) {
    seat.numbers().make_unreadable(kNone);
    seat.numbers().make_slow(slow);
  }
  if (!steps.empty() && !loader_.stock && dice_.one_in(4)) {
    failing_step_ = static_cast<std::size_t>(
        dice_.one_in(2) ? 0 : dice_.below(static_cast<std::int64_t>(steps.size())));
    const auto rank = static_cast<std::size_t>(dice_.below(ranks_));
    const Ids& ids = steps[failing_step_].ids[rank];
    const auto at = dice_.salt();
    if (!ids.empty()) {
      failing_rank_ = static_cast<int>(rank);
      context_.note(fmt::format("rank {} cannot read batch {}", rank, failing_step_ + 1));
      for (Seat& seat : seats_)
        if (seat.rank() == failing_rank_) seat.numbers().make_unreadable(ids[at % ids.size()]);
    }
  }
  gathers_ = is_real_ && dice_.one_in(2);
  gathers_rows_ = dice_.one_in(2);
  gather_name_ = dice_.one_in(2) ? "rows" : "";
  meter_.reset();
  sum_ = 0;
  count_ = 0;
  resumes_.reset();
  epoch_is_chosen_ = false;
  progress_ = from;
  for (Seat& seat : seats_) seat.begin(from, steps);
}

void SamplerProgram::pass() {
  if (dice_.one_in(2)) choose_epoch();
  begin_pass();
  const Place from = progress_;
  const std::vector<Step> steps = deal(data_, from, ranks_, loader_.batch);
  const auto count = static_cast<std::int64_t>(steps.size());
  const bool is_left = count > 0 && dice_.one_in(2);
  const auto stop = static_cast<std::size_t>(is_left ? 1 + dice_.below(count) : count);
  const auto saves_at = static_cast<std::size_t>(
      dice_.one_in(2) && stop > 0 ? 1 + dice_.below(static_cast<std::int64_t>(stop)) : 0);
  context_.note(fmt::format("a pass of {} steps from {}, {}", count, from.text(),
                            is_left ? fmt::format("left after {}", stop) : "whole"));
  for (std::size_t i = 0; i < stop; ++i) {
    do_step(steps, i);
    if (i + 1 == saves_at) save();
  }
  if (!is_left) return end_pass(steps);
  if (data_.kind != Kind::kElastic) return;
  if (dice_.one_in(2)) return undo_step(stop > 1 ? steps[stop - 2].after : from);
  if (is_real_ && dice_.one_in(2)) sync(static_cast<int>(dice_.below(ranks_)));
}

bool SamplerProgram::is_lost(std::size_t step, int rank) const {
  return step > 0 && step == failing_step_ && rank == failing_rank_;
}

void SamplerProgram::do_step(const std::vector<Step>& steps, std::size_t number) {
  const Step& step = steps[number];
  std::optional<torch::Tensor> mine;
  for (Seat& seat : seats_)
    mine = seat.take(step, seat.rank() == failing_rank_ && number == failing_step_);
  progress_ = step.after;
  check_seats();
  if (!is_real_) return;
  Ids rows;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (is_lost(number, rank)) continue;
    const Ids& ids = step.ids[static_cast<std::size_t>(rank)];
    for (const std::int64_t id : ids) sum_ += static_cast<double>(id);
    count_ += std::ssize(ids);
    rows.insert(rows.end(), ids.begin(), ids.end() - step.padding[static_cast<std::size_t>(rank)]);
  }
  if (mine) meter_.add(mine->to(torch::kFloat64).mean().item<double>(), mine->numel());
  last_mine_ = mine.value_or(torch::empty({0}, torch::kInt64));
  last_rows_ = std::move(rows);
  if (gathers_) gather(last_mine_, last_rows_);
}

void SamplerProgram::gather(const torch::Tensor& mine, const Ids& right) {
  context_.note("gathering a batch");
  const torch::Tensor both = torch::stack({mine, 2 * mine}, 1);
  const torch::Tensor all =
      gather_for_metrics(gathers_rows_ ? both : mine, seats_[0].sampler(), {.name = gather_name_});
  const Ids got = ids_of(gathers_rows_ ? all.select(1, 0) : all);
  if (got != right)
    throw Differs(
        fmt::format("gather_for_metrics gives {} instead of {}", text_of(got), text_of(right)));
}

void SamplerProgram::end_pass(const std::vector<Step>& steps) {
  for (Seat& seat : seats_) seat.expect_end();
  // If nothing of an epoch is dealt out, nothing of it has been got.
  progress_ =
      resumed(data_, {.epoch = epoch_, .got = total_of(data_, ranks_), .ended = true}, ranks_);
  check_seats();
  if (!is_real_) return;
  // Here all ranks have a last batch, and know that it is the last.
  const bool is_even = data_.kind == Kind::kTraining && data_.global_batch == 0;
  const bool is_known = !(loader_.stock && loader_.batch.drop_last);
  if (gathers_ && is_even && is_known && !steps.empty()) gather(last_mine_, last_rows_);
  context_.note("a meter's total");
  const Meter::Total total = meter_.total();
  const bool is_right = total.count == count_ && std::abs(total.sum - sum_) <= 1e-9 * (1 + sum_) &&
                        std::isnan(total.mean()) == (count_ == 0);
  if (!is_right)
    throw Differs(fmt::format("after {} steps a meter has {} of {} instead of {} of {}",
                              steps.size(), total.sum, total.count, sum_, count_));
}

/// The last step's batch was not trained on, on the rank whose state all ranks load.
void SamplerProgram::undo_step(const Place& before) {
  const int root = static_cast<int>(dice_.below(ranks_));
  const bool syncs = is_real_ && dice_.one_in(2);
  const bool on_all = !syncs || dice_.one_in(2);
  context_.note(fmt::format("the last step is undone{}", on_all ? "" : " on the root"));
  for (Seat& seat : seats_)
    if (on_all || seat.rank() == root) seat.elastic().undo_last_batch();
  progress_ = {.epoch = epoch_, .got = before.got, .ended = data_.count == before.got};
  if (on_all) check_seats();
  if (syncs) return sync(root);
  save();
}

void SamplerProgram::sync(int root) {
  context_.note(fmt::format("sync() with rank {}", root));
  Seat& seat = seats_[0];
  const Place where = place();
  if (const bool strays = dice_.one_in(2); strays && seat.rank() != root)
    seat.sampler().set_epoch(9);
  seat.elastic().sync(root);
  went_on_at(where);
}

void SamplerProgram::save() {
  Saved now{.place = place()};
  const auto saver = static_cast<int>(dice_.below(ranks_));
  context_.note(fmt::format("rank {} saves: {}", saver, now.place.text()));
  if (is_real_) {
    now.own = saved(seats_[0].sampler());
    now.world = ranks_;
    now.state = broadcast_object(now.own, saver);
  } else {
    now.state = saved(seats_[static_cast<std::size_t>(saver)].sampler());
  }
  now.is_in_file = dice_.one_in(2);
  if (now.is_in_file) {
    now.data = fmt::format("{}", dice_.salt());
    context_.note("saving a checkpoint");
    save_checkpoint(context_.folder / "state.pt",
                    {.sampler = &seats_[0].sampler(), .data = &now.data},
                    static_cast<std::int64_t>(now.place.epoch));
  }
  saved_ = std::move(now);
}

void SamplerProgram::restore() {
  const Saved& from = *saved_;
  if (dice_.one_in(5)) expect_refused(from);
  const bool by_sync = is_real_ && data_.kind == Kind::kElastic && dice_.one_in(2);
  const bool by_file = from.is_in_file && dice_.one_in(2);
  const bool by_own = is_real_ && from.world == ranks_ && dice_.one_in(2);
  const int root = static_cast<int>(dice_.below(ranks_));
  context_.note(fmt::format("going on at {} by {}", from.place.text(),
                            by_sync   ? fmt::format("sync() with rank {}", root)
                            : by_file ? "a checkpoint"
                            : by_own  ? "each rank's own state"
                                      : "one state"));
  if (by_sync) {
    Seat& seat = seats_[0];
    if (seat.rank() == root) load(seat.sampler(), from.state);
    seat.elastic().sync(root);
    return went_on_at(from.place);
  }
  for (Seat& seat : seats_) {
    if (!by_file) {
      load(seat.sampler(), by_own ? from.own : from.state);
      continue;
    }
    std::string data;
    const std::int64_t epoch =
        load_checkpoint(context_.folder / "state.pt", {.sampler = &seat.sampler(), .data = &data});
    if (data != from.data || epoch != static_cast<std::int64_t>(from.place.epoch))
      throw Differs(fmt::format("the checkpoint has epoch {} and '{}' instead of '{}'", epoch, data,
                                from.data));
  }
  went_on_at(from.place);
}

/// A sampler of other data must refuse the state, unless nothing or everything is left.
void SamplerProgram::expect_refused(const Saved& from) {
  DataPlan other = data_;
  const auto change = dice_.below(3);
  if (change == 0) other.count += 1;
  if (change == 1) other.seed += 1;
  if (change == 2) other.shuffle = !other.shuffle;
  const bool is_refused = from.place.got > 0 && !from.place.ended;
  if (data_.kind == Kind::kElastic && from.place.ended) return;
  Sampler sampler = make_sampler(other, 0, 1);
  RankSampler& its = std::visit([](auto& any) -> RankSampler& { return any; }, sampler);
  its.set_epoch(7);
  bool was_refused = false;
  try {
    load(its, from.state);
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kMismatch) throw;
    was_refused = true;
  }
  if (was_refused != is_refused)
    throw Differs(fmt::format("the state of {}, {}, is {}refused by {}", data_.text(),
                              from.place.text(), was_refused ? "" : "not ", other.text()));
  its.reset();
  const bool any = its.next(1).has_value();
  if (its.epoch() != (is_refused ? 7 : from.place.epoch) ||
      any != (total_of(other, 1) > 0 && (is_refused || !from.place.ended)))
    throw Differs(fmt::format("{}, {}, gives a sampler of {} epoch {} with {}", data_.text(),
                              from.place.text(), other.text(), its.epoch(),
                              any ? "elements" : "nothing"));
}

void SamplerProgram::went_on_at(const Place& place) {
  progress_ = resumed(data_, place, ranks_);
  resumes_ = progress_;
  epoch_ = place.epoch;
  epoch_is_chosen_ = true;
  check_seats();
}

void SamplerProgram::run() {
  context_.note(data_.text());
  const auto worlds = 1 + dice_.below(4);
  for (int world = 0; world < worlds; ++world) {
    make_world();
    if (saved_) restore();
    const auto passes = 1 + dice_.below(3);
    for (int i = 0; i < passes; ++i) {
      pass();
      if (saved_ && dice_.one_in(4)) restore();
    }
    if (dice_.one_in(2)) save();
  }
}

void run_sampler_program(ProgramContext& context) { SamplerProgram(context).run(); }

}  // namespace kolo::test
