#include "tests/bindings/core/stress/program.h"

#include <algorithm>
#include <numeric>

namespace kolo::test {
namespace {

constexpr int kNames = 64;
constexpr int kMostSets = 6;

bool reduces(Act act) { return act == Act::kAllreduce || act == Act::kReduceScatter; }

}  // namespace

int Step::place_of(int rank) const {
  const auto it = std::find(ranks.begin(), ranks.end(), rank);
  return it == ranks.end() ? -1 : static_cast<int>(it - ranks.begin());
}

Program::Program(const ProgramOptions& options) : options_(options), dice_(options.seed) {}

std::vector<int> Program::ranks_of(int set) const {
  if (set != kWorld) return sets_.at(set);
  std::vector<int> all(static_cast<std::size_t>(options_.size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int Program::any_set() {
  if (sets_.empty() || dice_.one_in(2)) return kWorld;
  return std::next(sets_.begin(), dice_.below(static_cast<int>(sets_.size())))->first;
}

std::int64_t Program::elements(DataType type) {
  const auto width = static_cast<std::int64_t>(size_of(type));
  if (dice_.one_in(12)) return dice_.below(2);
  if (dice_.one_in(60)) return (4 * options_.max_bytes + dice_.below(4096)) / width;
  std::int64_t bytes = 16;
  while (bytes < options_.max_bytes && !dice_.one_in(9)) bytes *= 2;
  return 1 + dice_.below(bytes) / width;
}

void Program::draw_reduction(Step& step) {
  do {
    step.op = static_cast<ReduceOp>(dice_.below(kReduceOpCount));
  } while (!is_supported(step.type, step.op) ||
           (step.op == ReduceOp::kAdasum && step.act != Act::kAllreduce));
  const bool scales = step.op == ReduceOp::kSum || step.op == ReduceOp::kMax ||
                      (step.op == ReduceOp::kAverage && is_floating(step.type));
  if (scales && step.type != DataType::kBool && dice_.one_in(4)) {
    step.prescale = 2.0;
    if (dice_.one_in(2)) step.postscale = 0.5;
  }
  step.absent.assign(step.ranks.size(), false);
  if (step.act == Act::kAllreduce && step.op == ReduceOp::kSum && dice_.one_in(6))
    for (std::size_t i = 0; i < step.ranks.size(); ++i) step.absent[i] = dice_.one_in(2);
}

void Program::draw_rows(Step& step) {
  const std::int64_t most = step.rows;
  const auto size = static_cast<std::size_t>(step.size());
  for (std::size_t i = 0; i < size; ++i) {
    step.rows_of.push_back(dice_.one_in(2) ? most : dice_.below(most + 1));
    auto& splits = step.splits.emplace_back();
    std::int64_t left = step.rows_of.back();
    for (std::size_t to = 0; to < size; ++to) {
      const bool last = to + 1 == size;
      splits.push_back(last ? left : dice_.below(2 * left / static_cast<int>(size - to) + 1));
      left -= splits.back();
    }
    if (dice_.one_in(3)) dice_.shuffle(splits);
  }
}

Step Program::draw(bool ordered) {
  Step step;
  step.type = static_cast<DataType>(dice_.below(kDataTypeCount));
  step.salt = dice_.salt();
  do {
    step.act = dice_.one_in(3) ? Act::kAllreduce : static_cast<Act>(dice_.below(kActCount));
  } while (ordered && step.act == Act::kMessage);
  if (dice_.one_in(2)) {
    const std::int64_t extents[] = {1, 3, 16};
    step.tail = {extents[dice_.below(3)]};
  }
  step.rows = elements(step.type) / step.tail_elements();
  step.set = any_set();
  step.ranks = ranks_of(step.set);
  step.root = step.ranks[static_cast<std::size_t>(dice_.below(step.size()))];
  step.to = step.ranks[static_cast<std::size_t>(dice_.below(step.size()))];
  // Each rank has as many parts as there are ranks.
  const bool in_parts = step.act == Act::kAlltoall ||
                        (ordered && (step.act == Act::kReduceScatter || step.act == Act::kScatter));
  if (in_parts) step.rows = (step.rows + step.size() - 1) / step.size();
  if (ordered) step.tail.clear();
  if (reduces(step.act)) draw_reduction(step);
  if (ordered && (step.op == ReduceOp::kAdasum)) step.op = ReduceOp::kSum;
  if (ordered) {
    step.prescale = step.postscale = 1.0;
    std::fill(step.absent.begin(), step.absent.end(), false);
  }
  if (!ordered) draw_rows(step);
  step.on_gpu = options_.gpu && !ordered && step.act != Act::kBarrier && !dice_.one_in(4);
  return step;
}

void Program::make_odd(Step& step) {
  if (step.size() < 2 || !step.members.empty()) return;
  std::vector<Odd> ways;
  switch (step.act) {
    case Act::kAllreduce:
    case Act::kReduceScatter:
      ways = {Odd::kType, Odd::kShape, Odd::kKind};
      if (step.act == Act::kReduceScatter) ways.push_back(Odd::kAllocator);
      break;
    case Act::kBroadcast:
      ways = {Odd::kType, Odd::kShape, Odd::kRoot, Odd::kKind};
      break;
    case Act::kAllgather:
    case Act::kGather:
      ways = {Odd::kType, Odd::kShape, Odd::kKind, Odd::kAllocator};
      break;
    case Act::kAlltoall:
      ways = {Odd::kType, Odd::kShape, Odd::kSplits, Odd::kAllocator};
      break;
    case Act::kScatter:
      ways = {Odd::kType, Odd::kShape, Odd::kAllocator};
      break;
    case Act::kMessage:
      if (step.root != step.to) ways = {Odd::kType};
      if (step.root != step.to && step.rows > 0) ways.push_back(Odd::kShape);
      break;
    case Act::kBarrier:
      ways = {Odd::kKind};
      break;
  }
  if (options_.gpu && step.act != Act::kMessage && step.act != Act::kBarrier)
    ways.push_back(Odd::kPlace);
  if (ways.empty()) return;
  step.odd = ways[static_cast<std::size_t>(dice_.below(static_cast<int>(ways.size())))];
  step.odd_rank = step.act == Act::kMessage
                      ? step.to
                      : step.ranks[static_cast<std::size_t>(dice_.below(step.size()))];
}

void Program::make_group(Step& step) {
  const int count = 1 + static_cast<int>(dice_.below(5));
  for (int i = 0; i < count; ++i) {
    Step member = step;
    member.members.clear();
    member.salt = dice_.salt();
    if (step.op == ReduceOp::kSum && step.prescale == 1.0)
      member.type = static_cast<DataType>(dice_.below(kDataTypeCount));
    member.rows = elements(member.type) / step.tail_elements() / 4;
    member.rows_of.clear();
    member.splits.clear();
    if (step.act == Act::kAllreduce && step.op == ReduceOp::kSum && dice_.one_in(2))
      for (std::size_t r = 0; r < step.ranks.size(); ++r) member.absent[r] = dice_.one_in(4);
    draw_rows(member);
    step.members.push_back(std::move(member));
  }
}

void Program::leave(Step& step) {
  // Messages with one tag match in their order, which shuffled threads do not keep.
  step.rounds_more =
      step.act != Act::kMessage && dice_.one_in(6) ? 1 + static_cast<int>(dice_.below(3)) : 0;
  if (step.rounds_more == 0) return;
  const int until = round_ + step.rounds_more;
  if (!step.name.empty()) busy_names_[step.name] = until;
  busy_sets_[step.set] = std::max(busy_sets_[step.set], until);
}

Lane Program::negotiated_communicator(int number, bool alone) {
  Lane lane;
  lane.shuffled = dice_.one_in(2);
  const int count = 1 + static_cast<int>(dice_.below(10));
  for (int i = 0; i < count; ++i) {
    const std::string name = names_.back();
    names_.pop_back();
    const auto known = known_.find(name);
    const bool again = known != known_.end() && !dice_.one_in(4) &&
                       (known->second.set == kWorld || sets_.contains(known->second.set));
    Step step;
    if (again) {
      step = known->second;
      step.salt = dice_.salt();
      for (Step& member : step.members) member.salt = dice_.salt();
    } else {
      step = draw(false);
      step.name = name;
      const bool groups = step.act == Act::kAllreduce || step.act == Act::kAllgather ||
                          step.act == Act::kReduceScatter;
      if (groups && dice_.one_in(5)) make_group(step);
      known_[name] = step;
    }
    // Unique if ranks submit in different orders.
    step.tag = static_cast<std::uint32_t>(number * 100);
    step.tag += static_cast<std::uint32_t>(lane.shuffled ? 10 + i : dice_.below(3));
    if (dice_.one_in(15)) make_odd(step);
    if (alone && !lane.shuffled && step.odd == Odd::kNothing && dice_.one_in(4)) step.name.clear();
    leave(step);
    lane.steps.push_back(std::move(step));
  }
  return lane;
}

Lane Program::in_order_communicator(int set) {
  Lane lane;
  lane.ordered = true;
  const int count = 1 + static_cast<int>(dice_.below(15));
  while (static_cast<int>(lane.steps.size()) < count) {
    Step step = draw(true);
    if (step.act != Act::kBarrier && dice_.one_in(12)) step.odd = Odd::kRefused;
    if (step.set != set) continue;
    leave(step);
    lane.steps.push_back(step);
    // Several of one form, as in a training loop.
    while (!dice_.one_in(3)) {
      step.salt = dice_.salt();
      lane.steps.push_back(step);
    }
  }
  return lane;
}

Round Program::calls() {
  Round round;
  const int named = static_cast<int>(dice_.below(4));
  for (int i = 0; i < named; ++i) round.lanes.push_back(negotiated_communicator(i, named == 1));
  if (named == 0 || dice_.one_in(2)) round.lanes.push_back(in_order_communicator(kWorld));
  for (const auto& [set, ranks] : sets_)
    if (dice_.one_in(5)) round.lanes.push_back(in_order_communicator(set));
  return round;
}

Round Program::add_set() {
  Round round;
  round.kind = Round::Kind::kAddSet;
  round.ranks = ranks_of(kWorld);
  dice_.shuffle(round.ranks);
  round.ranks.resize(static_cast<std::size_t>(1 + dice_.below(options_.size)));
  std::sort(round.ranks.begin(), round.ranks.end());
  const bool is_there = round.ranks == ranks_of(kWorld) ||
                        std::any_of(sets_.begin(), sets_.end(),
                                    [&](const auto& s) { return s.second == round.ranks; });
  if (is_there) return calls();
  round.set = next_set_++;
  sets_[round.set] = round.ranks;
  return round;
}

Round Program::remove_set() {
  Round round;
  round.kind = Round::Kind::kRemoveSet;
  round.set = std::next(sets_.begin(), dice_.below(static_cast<int>(sets_.size())))->first;
  // An operation in flight would keep the set.
  if (const auto busy = busy_sets_.find(round.set);
      busy != busy_sets_.end() && busy->second >= round_)
    return calls();
  sets_.erase(round.set);
  return round;
}

Round Program::join() {
  Round round;
  round.kind = Round::Kind::kJoin;
  round.set = any_set();
  round.ranks = ranks_of(round.set);
  const int count = 1 + static_cast<int>(dice_.below(6));
  Lane& lane = round.lanes.emplace_back();
  for (int i = 0; i < count; ++i) {
    Step step;
    step.name = names_.back();
    names_.pop_back();
    known_.erase(step.name);
    step.set = round.set;
    step.ranks = round.ranks;
    step.type = static_cast<DataType>(dice_.below(kDataTypeCount));
    step.op = step.type == DataType::kBool || dice_.one_in(2) ? ReduceOp::kSum : ReduceOp::kAverage;
    step.rows = elements(step.type);
    step.salt = dice_.salt();
    step.absent.assign(step.ranks.size(), false);
    step.on_gpu = options_.gpu && !dice_.one_in(4);
    lane.steps.push_back(std::move(step));
  }
  for (std::size_t i = 0; i < round.ranks.size(); ++i)
    round.joins_after.push_back(static_cast<int>(dice_.below(count + 1)));
  return round;
}

Round Program::next() {
  ++round_;
  std::erase_if(busy_names_, [&](const auto& busy) { return busy.second < round_; });
  names_.clear();
  for (int i = 0; i < kNames; ++i) {
    const std::string name = "n" + std::to_string(i);
    if (!busy_names_.contains(name)) names_.push_back(name);
  }
  dice_.shuffle(names_);
  const auto kind = dice_.below(8);
  Round round;
  if (kind == 0 && static_cast<int>(sets_.size()) < kMostSets) {
    round = add_set();
  } else if (kind == 1 && sets_.size() > 2) {
    round = remove_set();
  } else if (kind == 2) {
    round = join();
  } else {
    round = calls();
  }
  round.late_ms.assign(static_cast<std::size_t>(options_.size), 0);
  if (dice_.one_in(4)) {
    for (int& ms : round.late_ms)
      if (dice_.one_in(2)) ms = static_cast<int>(dice_.below(20));
  }
  return round;
}

}  // namespace kolo::test
