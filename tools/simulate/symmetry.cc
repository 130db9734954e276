#include "tools/simulate/symmetry.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace kolo::simulate {
namespace {

/// What a rank does once its peers' hosts are moved by `k`: a number for each step, made of what it
/// moves, with whom, and the numbers of the steps before it; sorted. Schedules are alike if they
/// have the same steps in another order. Tags count between hosts only: those inside a host
/// may be numbered after the host.
std::vector<std::uint64_t> traits_of(const Machine& machine, const RankProgram& rank, int own_host,
                                     Symmetry symmetry, int k) {
  const auto mix = [](std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0xd1342543de82ef95u;
    return hash ^ (hash >> 32);
  };
  const Program& program = *rank.program;
  std::vector<std::uint64_t> traits(program.ops.size());  // first, the sums over the steps before
  for (StepId step = 0; step < program.ops.size(); ++step) {
    const Program::Op& op = program.ops[step];
    std::uint64_t trait = mix(mix(traits[step], op.bytes), static_cast<std::uint64_t>(op.kind));
    trait = mix(trait, op.waits_for);
    if (op.kind != StepKind::kReduce && op.kind != StepKind::kCopy) {
      const int peer = rank.peers[op.peer];
      if (machine.host_of(peer) != own_host) trait = mix(trait, op.tag);
      trait = mix(trait, static_cast<std::uint64_t>(moved(machine, symmetry, peer, k)));
    }
    traits[step] = trait;
    for (const StepId next : program.after(step)) traits[next] += mix(trait, 1);
  }
  std::sort(traits.begin(), traits.end());
  return traits;
}

/// By how much is_alike() moves the hosts.
std::set<int> moves_of(const Machine& machine, Symmetry symmetry) {
  constexpr int kAll = 64;
  std::set<int> moves;
  for (int k = 1; k < std::min(machine.hosts, kAll); ++k) moves.insert(k);
  if (machine.hosts <= kAll) return moves;
  moves = {1, machine.hosts / 3};
  for (int k = 1; symmetry == Symmetry::kMirror && k < machine.hosts; k *= 2) moves.insert(k);
  return moves;
}

}  // namespace

std::string_view to_string(Symmetry symmetry) {
  switch (symmetry) {
    case Symmetry::kNone:
      return "all ranks";
    case Symmetry::kTurn:
    case Symmetry::kMirror:
      return "one host for all";
  }
  return "";
}

int moved(const Machine& machine, Symmetry symmetry, int rank, int k) {
  const int host = machine.host_of(rank);
  const int local_rank = rank % machine.ranks_per_host;
  switch (symmetry) {
    case Symmetry::kTurn:
      return (host + k) % machine.hosts * machine.ranks_per_host + local_rank;
    case Symmetry::kMirror:
      return (host ^ k) * machine.ranks_per_host + local_rank;
    case Symmetry::kNone:
      break;
  }
  return rank;
}

bool is_alike(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
              Symmetry symmetry) {
  const bool is_power = (machine.hosts & (machine.hosts - 1)) == 0;
  if (!machine.is_uniform() || (symmetry == Symmetry::kMirror && !is_power)) return false;
  for (int rank = 0; rank < machine.ranks_per_host; ++rank) {
    const RankProgram first = compile(schedule_of(rank), widths, machine);
    for (const int k : moves_of(machine, symmetry)) {
      const int other = moved(machine, symmetry, rank, k);
      if (traits_of(machine, first, 0, symmetry, k) !=
          traits_of(machine, compile(schedule_of(other), widths, machine), machine.host_of(other),
                    symmetry, 0))
        return false;
    }
  }
  return true;
}

}  // namespace kolo::simulate
