// Plays all ranks' schedules with symbols for data. A message moves only when both its ends have
// been reached (rendezvous), which finds deadlocks that buffering would hide.
#include "tests/support/schedule_checker_parts.h"
#include "tests/support/schedule_checker_values.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

namespace kolo::test {
namespace {

struct Cell {
  ValueId value = Values::kNothing;
  std::uint64_t position = 0;  ///< index of the tensor's element that it belongs to
  bool partial = false;        ///< whether it was written as a partial sum
};

std::string text_of(const Terms& terms) {
  std::string text;
  for (const Term& term : terms)
    text += fmt::format(" {}×rank {} (prescaled {}, postscaled {} times)", term.times, term.rank,
                        term.prescaled, term.postscaled);
  return text;
}

class Simulation {
 public:
  Simulation(std::span<const Schedule> schedules, const Partners& partners,
             const Contract& contract)
      : schedules_(schedules), partners_(partners), contract_(contract) {}

  Result<std::vector<GlobalStep>> run();

 private:
  const Schedule& schedule(int rank) const { return schedules_[static_cast<std::size_t>(rank)]; }
  Cell* cells(const Operand& operand, Role role, int rank) {
    const Location location = locate(operand, role, rank, contract_);
    return memory_[static_cast<std::size_t>(location.owner)]
                  [static_cast<std::size_t>(location.space)]
                      .data() +
           location.begin;
  }

  bool reads_input(const Operand& source) const;
  void prepare();
  void finish(GlobalStep step);
  Status start(GlobalStep step);
  Status run_local(GlobalStep step);
  Result<ValueId> evaluate(GlobalStep id, const std::vector<Cell>& sources);
  Status check_rounding(GlobalStep id, ValueId value) const;
  Status check_result(int rank);
  /// `begin`: where the stretch begins in the rank's output.
  Status check_stretch(int rank, const Contract::Stretch& stretch, std::uint64_t begin);
  Status report_deadlock() const;

  std::span<const Schedule> schedules_;
  const Partners& partners_;
  const Contract& contract_;
  Values values_;
  // By rank, then by Space: kInput, kOutput, kScratch, kStaging.
  std::vector<std::array<std::vector<Cell>, 4>> memory_;
  // By rank and step.
  std::vector<std::vector<std::uint32_t>> waiting_for_;
  std::vector<std::vector<std::vector<StepId>>> successors_;
  std::vector<std::vector<bool>> reached_;
  std::deque<GlobalStep> ready_;
  std::vector<GlobalStep> finish_order_;
  std::map<std::uint64_t, ValueId> sums_;  ///< by element: the sum on the first rank that has it
};

void Simulation::prepare() {
  const std::size_t ranks = schedules_.size();
  memory_.resize(ranks);
  waiting_for_.resize(ranks);
  successors_.resize(ranks);
  reached_.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const Schedule& schedule = schedules_[r];
    auto& [input, output, scratch, staging] = memory_[r];
    const Contract::Rank& memory = contract_.ranks[r];
    scratch.resize(schedule.scratch_elements);
    staging.resize(schedule.staging_elements);
    const bool shared = contract_.options.input_is_output;
    output.resize(shared ? std::max(memory.input_begin + memory.input_elements,
                                    memory.output_begin + memory.output_elements)
                         : memory.output_elements);
    if (!shared) input.resize(memory.input_elements);
    Cell* const given = shared ? output.data() + memory.input_begin : input.data();
    for (std::uint64_t i = 0; i < memory.input_elements; ++i)
      given[i] = {values_.input(static_cast<int>(r)), i};

    const std::size_t steps = schedule.steps.size();
    waiting_for_[r].resize(steps);
    successors_[r].resize(steps);
    reached_[r].resize(steps);
    for (StepId id = 0; id < steps; ++id) {
      const auto dependencies = schedule.depends_on(schedule.steps[id]);
      waiting_for_[r][id] = static_cast<std::uint32_t>(dependencies.size());
      for (const StepId dependency : dependencies) successors_[r][dependency].push_back(id);
      if (dependencies.empty()) ready_.push_back({static_cast<int>(r), id});
    }
  }
}

void Simulation::finish(GlobalStep step) {
  finish_order_.push_back(step);
  const auto rank = static_cast<std::size_t>(step.rank);
  for (const StepId next : successors_[rank][step.step])
    if (--waiting_for_[rank][next] == 0) ready_.push_back({step.rank, next});
}

Status Simulation::start(GlobalStep id) {
  const Step& step = schedule(id.rank).steps[id.step];
  if (!is_message(step.kind)) {
    KOLO_TRY(run_local(id));
    finish(id);
    return {};
  }
  const auto rank = static_cast<std::size_t>(id.rank);
  reached_[rank][id.step] = true;
  const GlobalStep other = partners_[rank][id.step];
  if (!reached_[static_cast<std::size_t>(other.rank)][other.step]) return {};

  const GlobalStep from = is_outgoing(step.kind) ? id : other;
  const GlobalStep to = is_outgoing(step.kind) ? other : id;
  const Step& send = schedule(from.rank).steps[from.step];
  if (send.kind == StepKind::kSend) {
    const Operand& source = schedule(from.rank).sources(send).front();
    const Step& receive = schedule(to.rank).steps[to.step];
    const Operand& destination = schedule(to.rank).destinations(receive).front();
    const Cell* const cell = cells(source, Role::kSource, from.rank);
    for (std::uint64_t i = 0; i < source.length; ++i) {
      if (cell[i].partial != source.partial)
        return KOLO_ERROR(kInternal, "{}: element {} is not what it was written as",
                          describe(schedule(from.rank), from.step), source.offset + i);
      if (cell[i].value == Values::kNothing)
        return KOLO_ERROR(kInternal, "{}: sends element {} before it was written",
                          describe(schedule(from.rank), from.step), source.offset + i);
    }
    std::copy_n(cell, source.length, cells(destination, Role::kDestination, to.rank));
  }
  finish(from);
  finish(to);
  return {};
}

/// Peers read an input in place only if the prescale is one; they then apply it as well.
bool Simulation::reads_input(const Operand& source) const {
  return source.space == Space::kInput ||
         (source.space == Space::kPeer && source.direct != Operand::kNowhere &&
          contract_.is_direct(Role::kSource, source.rank));
}

Status Simulation::run_local(GlobalStep id) {
  const Schedule& schedule = this->schedule(id.rank);
  const Step& step = schedule.steps[id.step];
  if (step.source_count == 0 || is_void(schedule, step, contract_)) return {};
  const auto sources = schedule.sources(step);
  const bool prescales = step.scaling == Scaling::kPre || step.scaling == Scaling::kBoth;

  std::vector<Cell> parts(sources.size());
  for (std::uint64_t i = 0; i < sources.front().length; ++i) {
    for (std::size_t k = 0; k < sources.size(); ++k) {
      parts[k] = cells(sources[k], Role::kSource, id.rank)[i];
      if (parts[k].partial != sources[k].partial)
        return KOLO_ERROR(kInternal, "{}: element {} of space {} is not what it was written as",
                          describe(schedule, id.step), sources[k].offset + i,
                          static_cast<int>(sources[k].space));
      if (prescales && reads_input(sources[k]) && parts[k].value != Values::kNothing)
        parts[k].value = values_.prescale(parts[k].value);
    }
    KOLO_ASSIGN(const ValueId value, evaluate(id, parts));
    for (const Operand& destination : schedule.destinations(step)) {
      if (!destination.partial) KOLO_TRY(check_rounding(id, value));
      cells(destination, Role::kDestination, id.rank)[i] = {value, parts.front().position,
                                                            destination.partial};
    }
  }
  return {};
}

Result<ValueId> Simulation::evaluate(GlobalStep id, const std::vector<Cell>& sources) {
  const Schedule& schedule = this->schedule(id.rank);
  const Step& step = schedule.steps[id.step];
  std::vector<ValueId> parts;
  for (const Cell& source : sources) {
    if (source.value == Values::kNothing)
      return KOLO_ERROR(kInternal, "{}: reads an element before it was written",
                        describe(schedule, id.step));
    if (source.position != sources.front().position)
      return KOLO_ERROR(kInternal, "{}: adds element {} of the tensor to element {}",
                        describe(schedule, id.step), source.position, sources.front().position);
    parts.push_back(source.value);
  }
  const ValueId value = parts.size() == 1 ? parts.front() : values_.sum(parts);
  const bool postscales = step.scaling == Scaling::kPost || step.scaling == Scaling::kBoth;
  return postscales ? values_.postscale(value) : value;
}

/// Checks that the value is rounded to the elements' type only where it may be. Adasum rounds each
/// combination.
Status Simulation::check_rounding(GlobalStep id, ValueId value) const {
  const Terms& terms = values_.terms(value);
  if (terms.size() == 1 || contract_.options.is_adasum) return {};
  const bool is_scaled = std::all_of(terms.begin(), terms.end(),
                                     [](const Term& term) { return term.postscaled == 1; });
  if (terms.size() == schedules_.size() && is_scaled) return {};
  return KOLO_ERROR(kInternal, "{}: rounds the sum of{}", describe(schedule(id.rank), id.step),
                    text_of(terms));
}

Status Simulation::check_result(int rank) {
  std::uint64_t begin = 0;
  for (const Contract::Stretch& stretch : contract_.of(rank).output) {
    KOLO_TRY(check_stretch(rank, stretch, begin));
    begin += stretch.length;
  }
  return {};
}

Status Simulation::check_stretch(int rank, const Contract::Stretch& stretch, std::uint64_t begin) {
  const bool is_sum = stretch.from == Contract::kAllRanks;
  Terms expected;
  if (is_sum) {
    for (int r = 0; r < static_cast<int>(schedules_.size()); ++r)
      expected.push_back({.rank = r, .prescaled = 1, .postscaled = 1});
  } else {
    expected.push_back({.rank = stretch.from});
  }
  const Cell* const output =
      cells({Space::kOutput, -1, begin, stretch.length}, Role::kDestination, rank);
  ValueId proved = Values::kNothing;
  for (std::uint64_t i = 0; i < stretch.length; ++i) {
    const Cell cell = output[i];
    const std::uint64_t position = stretch.position + i;
    if (cell.value == Values::kNothing || cell.position != position)
      return KOLO_ERROR(kInternal, "rank {}: output element {} holds {}", rank, begin + i,
                        cell.value == Values::kNothing
                            ? std::string("nothing")
                            : fmt::format("element {} of the tensor", cell.position));
    if (is_sum) {
      ValueId& first = sums_.try_emplace(position, cell.value).first->second;
      if (cell.value != first)
        return KOLO_ERROR(kInternal,
                          "rank {}: output element {} was summed in another order than on the "
                          "ranks before",
                          rank, begin + i);
    }
    if (cell.value == proved) continue;
    if (values_.terms(cell.value) != expected)
      return KOLO_ERROR(kInternal, "rank {}: output element {} is the sum of{}", rank, begin + i,
                        text_of(values_.terms(cell.value)));
    proved = cell.value;
  }
  return {};
}

Status Simulation::report_deadlock() const {
  std::string stuck;
  for (std::size_t r = 0; r < schedules_.size(); ++r)
    for (StepId id = 0; id < schedules_[r].steps.size(); ++id) {
      if (!reached_[r][id]) continue;
      const GlobalStep other = partners_[r][id];
      if (reached_[static_cast<std::size_t>(other.rank)][other.step]) continue;
      stuck += "; " + describe(schedules_[r], id);
      break;  // one error per rank is enough
    }
  return KOLO_ERROR(kInternal, "deadlock: nothing can go on{}", stuck);
}

Result<std::vector<GlobalStep>> Simulation::run() {
  prepare();
  std::size_t steps = 0;
  for (const Schedule& schedule : schedules_) steps += schedule.steps.size();
  while (!ready_.empty()) {
    const GlobalStep step = ready_.front();
    ready_.pop_front();
    KOLO_TRY(start(step));
  }
  if (finish_order_.size() != steps) KOLO_TRY(report_deadlock());
  for (int rank = 0; rank < static_cast<int>(schedules_.size()); ++rank)
    KOLO_TRY(check_result(rank));
  return std::move(finish_order_);
}

}  // namespace

Result<std::vector<GlobalStep>> simulate(std::span<const Schedule> schedules,
                                         const Partners& partners, const Contract& contract) {
  return Simulation(schedules, partners, contract).run();
}

}  // namespace kolo::test
