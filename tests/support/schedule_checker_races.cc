// Finds steps that touch the same memory without an order between them. The order is the transitive
// closure of the dependencies, as one set of bits per step. If no peer maps a rank's memory, the
// rank is checked by itself, by its own dependencies. If peers map each other's scratch, messages
// also order the steps of different ranks.
#include "tests/support/schedule_checker_parts.h"

#include <algorithm>
#include <tuple>

namespace kolo::test {
namespace {

/// By step: the set of steps that have certainly finished when it starts. Steps are numbered so
/// that these come before it.
class Order {
 public:
  explicit Order(std::size_t steps) {
    for (std::size_t step = 0; step < steps; ++step) rows_.push_back(rows_.back() + step / 64 + 1);
    before_.assign(rows_.back(), 0);
  }

  void add_finished(std::size_t step, std::size_t earlier) {
    add_started(step, earlier);
    before_[rows_[step] + earlier / 64] |= std::uint64_t{1} << (earlier % 64);
  }
  /// `earlier` has started when `step` starts: the steps before `earlier` have finished.
  void add_started(std::size_t step, std::size_t earlier) {
    for (std::size_t from = rows_[earlier], to = rows_[step]; from < rows_[earlier + 1];
         ++from, ++to)
      before_[to] |= before_[from];
  }
  bool is_ordered(std::size_t a, std::size_t b) const {
    const auto [first, last] = std::minmax(a, b);
    return (before_[rows_[last] + first / 64] >> (first % 64) & 1) != 0;
  }

 private:
  std::vector<std::size_t> rows_ = {0};  ///< where a step's set begins
  // The memory stays for the next check, since new pages take longer than the check.
  static thread_local std::vector<std::uint64_t> before_;
};

thread_local std::vector<std::uint64_t> Order::before_;

struct Access {
  Location location;
  GlobalStep step;
  std::size_t index = 0;  ///< index of the step in the Order
  bool writes = false;
};

void add_accesses(const Schedule& schedule, StepId id, std::size_t index, const Contract& contract,
                  std::vector<Access>& accesses) {
  const Step& step = schedule.steps[id];
  if (is_void(schedule, step, contract)) return;
  const auto add = [&](const Operand& operand, bool writes) {
    const Role role = writes ? Role::kDestination : Role::kSource;
    accesses.push_back(
        {locate(operand, role, schedule.rank, contract), {schedule.rank, id}, index, writes});
  };
  bool reads = step.destination_count == 0;
  for (const Operand& destination : schedule.destinations(step)) {
    const bool onto_itself =
        step.kind == StepKind::kCopy && step.scaling == Scaling::kNone &&
        locate(destination, Role::kDestination, schedule.rank, contract) ==
            locate(schedule.sources(step).front(), Role::kSource, schedule.rank, contract);
    if (onto_itself) continue;  // the executor does not touch such memory
    add(destination, true);
    reads = true;
  }
  if (!reads) return;
  for (const Operand& source : schedule.sources(step)) add(source, false);
}

Status find_race(std::span<const Schedule> schedules, std::vector<Access> accesses,
                 const Order& order) {
  const auto place = [](const Access& access) {
    return std::tuple(access.location.owner, access.location.space, access.location.begin);
  };
  std::sort(accesses.begin(), accesses.end(),
            [&](const Access& a, const Access& b) { return place(a) < place(b); });
  std::vector<const Access*> open;  // accesses that may reach as far as the next one's begin
  for (const Access& access : accesses) {
    std::erase_if(open, [&](const Access* a) { return !a->location.overlaps(access.location); });
    for (const Access* other : open) {
      if (!access.writes && !other->writes) continue;
      const std::size_t a = access.index, b = other->index;
      if (a == b || order.is_ordered(a, b)) continue;
      return KOLO_ERROR(
          kInternal, "race on elements from {} of space {} of rank {}: {} and {} have no order",
          access.location.begin, static_cast<int>(access.location.space), access.location.owner,
          describe(schedules[static_cast<std::size_t>(other->step.rank)], other->step.step),
          describe(schedules[static_cast<std::size_t>(access.step.rank)], access.step.step));
    }
    open.push_back(&access);
  }
  return {};
}

Status check_alone(std::span<const Schedule> schedules, const Schedule& schedule,
                   const Contract& contract) {
  Order order(schedule.steps.size());
  std::vector<Access> accesses;
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    for (const StepId dependency : schedule.depends_on(schedule.steps[id]))
      order.add_finished(id, dependency);
    add_accesses(schedule, id, id, contract, accesses);
  }
  return find_race(schedules, std::move(accesses), order);
}

Status check_together(std::span<const Schedule> schedules, const Partners& partners,
                      std::span<const GlobalStep> finish_order, const Contract& contract) {
  std::vector<std::vector<std::size_t>> numbers;  // by rank and step
  for (const Schedule& schedule : schedules) numbers.emplace_back(schedule.steps.size());
  for (std::size_t number = 0; number < finish_order.size(); ++number) {
    const GlobalStep id = finish_order[number];
    numbers[static_cast<std::size_t>(id.rank)][id.step] = number;
  }
  const auto index = [&](GlobalStep id) {
    return numbers[static_cast<std::size_t>(id.rank)][id.step];
  };

  Order order(finish_order.size());
  std::vector<Access> accesses;
  for (const GlobalStep id : finish_order) {
    const auto rank = static_cast<std::size_t>(id.rank);
    const Schedule& schedule = schedules[rank];
    for (const StepId dependency : schedule.depends_on(schedule.steps[id.step])) {
      order.add_finished(index(id), index({id.rank, dependency}));
      const StepKind kind = schedule.steps[dependency].kind;
      if (!is_message(kind) || is_outgoing(kind)) continue;
      const std::size_t send = index(partners[rank][dependency]);
      if (send < index(id)) order.add_started(index(id), send);
    }
    add_accesses(schedule, id.step, index(id), contract, accesses);
  }
  return find_race(schedules, std::move(accesses), order);
}

}  // namespace

Status check_races(std::span<const Schedule> schedules, const Partners& partners,
                   std::span<const GlobalStep> finish_order, const Contract& contract) {
  const bool mapped = std::any_of(schedules.begin(), schedules.end(), [](const Schedule& schedule) {
    return std::any_of(schedule.operands.begin(), schedule.operands.end(),
                       [](const Operand& operand) { return operand.space == Space::kPeer; });
  });
  if (mapped) return check_together(schedules, partners, finish_order, contract);
  for (const Schedule& schedule : schedules) KOLO_TRY(check_alone(schedules, schedule, contract));
  return {};
}

}  // namespace kolo::test
