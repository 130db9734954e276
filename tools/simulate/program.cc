#include "tools/simulate/program.h"

#include <algorithm>
#include <tuple>

namespace kolo::simulate {
namespace {

std::uint64_t bytes_of(const Operand& operand, Widths widths) {
  return operand.length * (operand.partial ? widths.partial : widths.element);
}

bool stays_in_place(const Schedule& schedule, const Step& step) {
  if (step.kind != StepKind::kCopy || step.source_count != 1 || step.destination_count != 1)
    return false;
  const Operand& from = schedule.sources(step).front();
  const Operand& to = schedule.destinations(step).front();
  return from.space == Space::kInput && to.space == Space::kOutput && from.offset == to.offset;
}

std::uint64_t bytes_of(const Schedule& schedule, const Step& step, Widths widths) {
  std::uint64_t bytes = 0;
  if (stays_in_place(schedule, step)) return bytes;
  for (const Operand& operand : schedule.sources(step)) bytes += bytes_of(operand, widths);
  for (const Operand& operand : schedule.destinations(step)) bytes += bytes_of(operand, widths);
  return bytes;
}

std::uint64_t far_bytes_of(const Schedule& schedule, const Step& step, Widths widths,
                           const Machine& machine) {
  std::uint64_t bytes = 0;
  for (const auto operands : {schedule.sources(step), schedule.destinations(step)})
    for (const Operand& operand : operands)
      if (operand.space == Space::kPeer &&
          machine.node_of(operand.rank) != machine.node_of(schedule.rank))
        bytes += bytes_of(operand, widths);
  return bytes;
}

bool arrives(StepKind kind) { return kind == StepKind::kReceive || kind == StepKind::kWait; }

/// Fills `begin` with the positions at which the ranges of 0, 1, … start, from their lengths in
/// begin[1], begin[2], ….
void add_up(std::vector<std::uint32_t>& begin) {
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
}

void list_arrivals(Program& program, std::size_t peers) {
  struct Found {
    std::uint32_t peer;
    Program::Arrival arrival;
  };
  std::vector<Found> found;
  program.arrival_begin.assign(peers + 1, 0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Program::Op& op = program.ops[i];
    if (!arrives(op.kind)) continue;
    found.push_back({op.peer, {op.tag, static_cast<StepId>(i)}});
    ++program.arrival_begin[op.peer + 1];
  }
  add_up(program.arrival_begin);
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.peer, a.arrival.tag) < std::tie(b.peer, b.arrival.tag);
  });
  program.arrivals.reserve(found.size());
  for (const Found& next : found) program.arrivals.push_back(next.arrival);
}

void list_successors(const Schedule& schedule, Program& program) {
  const std::size_t steps = schedule.steps.size();
  program.successor_begin.assign(steps + 1, 0);
  for (const StepId before : schedule.dependencies) ++program.successor_begin[before + 1];
  add_up(program.successor_begin);
  program.successors.resize(schedule.dependencies.size());
  std::vector<std::uint32_t> next(program.successor_begin.begin(),
                                  program.successor_begin.end() - 1);
  for (std::size_t i = 0; i < steps; ++i)
    for (const StepId before : schedule.depends_on(schedule.steps[i]))
      program.successors[next[before]++] = static_cast<StepId>(i);
}

std::uint64_t hash_of(const Program& program) {
  std::uint64_t hash = program.ops.size();
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0xd1342543de82ef95u;
    hash ^= hash >> 32;
  };
  for (const Program::Op& op : program.ops) {
    mix(op.bytes);
    mix((std::uint64_t{op.peer} << 32) | op.tag);
  }
  return hash;
}

}  // namespace

RankProgram compile(const Schedule& schedule, Widths widths, const Machine& machine) {
  RankProgram rank;
  auto program = std::make_shared<Program>();
  std::unordered_map<int, std::uint32_t> index_of;
  program->ops.reserve(schedule.steps.size());
  for (const Step& step : schedule.steps) {
    Program::Op op{.kind = step.kind,
                   .tag = step.tag,
                   .waits_for = step.dependency_count,
                   .bytes = bytes_of(schedule, step, widths),
                   .far_bytes = far_bytes_of(schedule, step, widths, machine)};
    if (step.peer >= 0) {
      const auto index = static_cast<std::uint32_t>(rank.peers.size());
      const auto [place, is_new] = index_of.emplace(step.peer, index);
      if (is_new) rank.peers.push_back(step.peer);
      op.peer = place->second;
    }
    if (arrives(step.kind)) ++op.waits_for;
    program->ops.push_back(op);
  }
  list_successors(schedule, *program);
  list_arrivals(*program, rank.peers.size());
  rank.program = std::move(program);
  return rank;
}

void ProgramPool::share(RankProgram& rank) {
  const std::uint64_t hash = hash_of(*rank.program);
  const auto [first, last] = programs_.equal_range(hash);
  for (auto found = first; found != last; ++found) {
    if (*found->second != *rank.program) continue;
    rank.program = found->second;
    return;
  }
  programs_.emplace(hash, rank.program);
}

}  // namespace kolo::simulate
