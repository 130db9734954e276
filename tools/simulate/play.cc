#include "tools/simulate/play.h"

#include "runtime/base/check.h"
#include "tools/simulate/events.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace kolo::simulate {
namespace {

/// First in, first out.
class Queue {
 public:
  void push(StepId id) { steps_.push_back(id); }
  bool empty() const { return head_ == steps_.size(); }
  StepId pop() {
    const StepId id = steps_[head_++];
    if (empty()) {
      steps_.clear();
      head_ = 0;
    }
    return id;
  }

 private:
  std::vector<StepId> steps_;
  std::size_t head_ = 0;
};

/// One direction of a link, which serves one message after the other. A link with a burst is a
/// token bucket: after a rest it lets so many bytes through at once.
class Lane {
 public:
  explicit Lane(const Link& link)
      : us_per_byte_(1e-3 / link.gigabytes_per_second),
        burst_us_(static_cast<double>(link.burst_bytes) * us_per_byte_) {}

  /// When the last byte leaves of a message that is ready `now`.
  double send(double now, std::uint64_t bytes) { return pass(now, burst_us_, bytes); }
  /// When the last byte is through of a message that has come in the `us` before `now`.
  double pass(double now, double us, std::uint64_t bytes) {
    filled_ = std::max(now - us, filled_) + static_cast<double>(bytes) * us_per_byte_;
    return std::max(now, filled_);
  }
  /// When the last byte is through of a message whose last byte comes `now`, the others before.
  double take(double now, std::uint64_t bytes) {
    filled_ = std::max(now - burst_us_, filled_ + static_cast<double>(bytes) * us_per_byte_);
    return std::max(now, filled_);
  }

 private:
  double us_per_byte_;
  double burst_us_;
  double filled_ = -std::numeric_limits<double>::infinity();  ///< when the bytes so far are through
};

struct Rank {
  explicit Rank(const Link& inside) : out(inside), in(inside) {}

  RankProgram code;
  std::vector<std::pair<int, std::uint32_t>> index_of;  ///< peers and their indices, by peer
  std::vector<std::uint32_t> waits_for;                 ///< by step
  std::vector<std::uint32_t> expected;  ///< by peer: where its next arrival probably is
  Queue transfers, needed, idle;
  bool busy = false;
  std::size_t remaining = 0;
  Lane out, in;  ///< to and from ranks of its host
};

struct Host {
  explicit Host(const Machine& machine)
      : out(machine.across),
        in(machine.across),
        nodes(static_cast<std::size_t>(machine.numa_nodes)) {}

  Lane out, in;
  struct Node {
    double memory_free = 0;
    double far_free = 0;
  };
  std::vector<Node> nodes;
};

struct Switch {
  explicit Switch(const Link& link) : up(link), down(link) {}

  Lane up, down;
};

std::vector<Switch> switches_of(const Machine& machine) {
  if (!machine.has_switches()) return {};
  const int switches = (machine.hosts + machine.hosts_per_switch - 1) / machine.hosts_per_switch;
  const Link link = {.gigabytes_per_second = machine.across.gigabytes_per_second *
                                             machine.hosts_per_switch / machine.oversubscription};
  return std::vector<Switch>(static_cast<std::size_t>(switches), Switch(link));
}

/// From 0 to 1, always the same for the same numbers.
double random_share(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                    std::uint64_t what) {
  std::uint64_t x = seed;
  for (const std::uint64_t value : {rank, step, what}) {  // Steele, Lea & Flood's SplitMix64
    x += 0x9e3779b97f4a7c15u + value;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1p-53;
}

class Player {
 public:
  Player(const Machine& machine, Symmetry symmetry)
      : machine_(machine),
        symmetry_(symmetry),
        hosts_(static_cast<std::size_t>(played_hosts()), Host(machine)),
        switches_(switches_of(machine)) {}

  Result<Played> run(const ScheduleOf& schedule_of, Widths widths);

 private:
  int played_hosts() const { return symmetry_ == Symmetry::kNone ? machine_.hosts : 1; }
  Host& host_of(std::uint32_t rank) {
    return hosts_[static_cast<std::size_t>(machine_.host_of(static_cast<int>(rank)))];
  }
  Switch& switch_of(int rank) {
    return switches_[static_cast<std::size_t>(machine_.switch_of(rank))];
  }
  const Program& program_of(std::uint32_t rank) const { return *ranks_[rank].code.program; }

  void load(const ScheduleOf& schedule_of, Widths widths);
  void push(double at, Event::What what, std::uint32_t rank, StepId step, bool across);
  Status handle(const Event& event);
  void release(std::uint32_t rank, StepId step);
  void finish(std::uint32_t rank, StepId step);
  Status work(std::uint32_t rank);
  Status ended(std::uint32_t rank, StepId step);
  Status post(std::uint32_t rank, StepId step);
  Result<StepId> find_receive(std::uint32_t to, int from, const Program::Op& sent);
  double core_time(std::uint32_t rank, StepId step);
  double varied(double us, std::uint32_t rank, StepId step, std::uint64_t what) const;
  const Link& link_of(std::uint32_t rank, const Program::Op& op) const;
  Error stuck() const;

  const Machine& machine_;
  const Symmetry symmetry_;
  std::vector<Host> hosts_;
  std::vector<Switch> switches_;  ///< empty: one switch joins all hosts
  std::vector<Rank> ranks_;
  Events events_;
  std::vector<std::pair<std::uint32_t, StepId>> finished_;  ///< whose successors are not released
  double now_ = 0;
  double left_ = 0;  ///< when the last message has left
};

void Player::load(const ScheduleOf& schedule_of, Widths widths) {
  ProgramPool pool;
  ranks_.assign(static_cast<std::size_t>(played_hosts() * machine_.ranks_per_host),
                Rank(machine_.inside));
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.code = compile(schedule_of(static_cast<int>(r)), widths, machine_);
    pool.share(rank.code);
    for (std::uint32_t i = 0; i < rank.code.peers.size(); ++i)
      rank.index_of.emplace_back(rank.code.peers[i], i);
    std::sort(rank.index_of.begin(), rank.index_of.end());
    const Program& program = *rank.code.program;
    rank.expected.assign(program.arrival_begin.begin(), program.arrival_begin.end() - 1);
    rank.waits_for.reserve(program.ops.size());
    for (const Program::Op& op : program.ops) rank.waits_for.push_back(op.waits_for);
    rank.remaining = program.ops.size();
  }
}

void Player::push(double at, Event::What what, std::uint32_t rank, StepId step, bool across) {
  const std::uint64_t local_rank = rank % static_cast<std::uint32_t>(machine_.ranks_per_host);
  events_.push({.at = at,
                .order = (static_cast<std::uint64_t>(what) << 48) | (local_rank << 32) | step,
                .rank = rank,
                .across = across});
}

double Player::varied(double us, std::uint32_t rank, StepId step, std::uint64_t what) const {
  if (machine_.jitter == 0) return us;
  return us * (1 + machine_.jitter * random_share(machine_.seed, rank, step, what));
}

const Link& Player::link_of(std::uint32_t rank, const Program::Op& op) const {
  const int peer = ranks_[rank].code.peers[op.peer];
  const bool inside = machine_.host_of(peer) == machine_.host_of(static_cast<int>(rank));
  return inside ? machine_.inside : machine_.across;
}

/// How long a rank's core is busy with a step from now on.
double Player::core_time(std::uint32_t rank, StepId step) {
  const Program::Op& op = program_of(rank).ops[step];
  const bool is_local = op.kind == StepKind::kReduce || op.kind == StepKind::kCopy;
  const auto bytes = static_cast<double>(op.bytes);
  double us =
      is_local ? bytes / (machine_.core_gigabytes_per_second * 1e3) : link_of(rank, op).overhead_us;
  if (static_cast<int>(rank) == machine_.slow_rank) us *= machine_.slow_factor;
  us = varied(us, rank, step, 0);
  if (!is_local || op.bytes == 0) return us;
  Host::Node& node =
      host_of(rank).nodes[static_cast<std::size_t>(machine_.node_of(static_cast<int>(rank)))];
  const auto take = [&](double& free, std::uint64_t taken, double gigabytes_per_second) {
    free = std::max(free, now_) + static_cast<double>(taken) / (gigabytes_per_second * 1e3);
    us = std::max(us, free - now_);
  };
  // Other nodes take as much of this node's memory as its ranks take of theirs.
  take(node.memory_free, op.bytes, machine_.memory_gigabytes_per_second / machine_.numa_nodes);
  if (op.far_bytes > 0) take(node.far_free, op.far_bytes, machine_.far_gigabytes_per_second);
  return us;
}

void Player::release(std::uint32_t rank, StepId step) {
  Rank& self = ranks_[rank];
  switch (program_of(rank).ops[step].kind) {
    case StepKind::kReceive:
    case StepKind::kWait:  // posted, and there
      finished_.emplace_back(rank, step);
      return;
    case StepKind::kSend:
    case StepKind::kSignal:
      self.transfers.push(step);
      return;
    case StepKind::kReduce:
    case StepKind::kCopy:
      (program_of(rank).after(step).empty() ? self.idle : self.needed).push(step);
      return;
  }
}

void Player::finish(std::uint32_t rank, StepId step) {
  finished_.emplace_back(rank, step);
  while (!finished_.empty()) {
    const auto [of, done] = finished_.back();
    finished_.pop_back();
    --ranks_[of].remaining;
    for (const StepId next : program_of(of).after(done))
      if (--ranks_[of].waits_for[next] == 0) release(of, next);
  }
}

/// Gives a rank's core what is ready, until it is busy or has nothing to do.
Status Player::work(std::uint32_t rank) {
  Rank& self = ranks_[rank];
  while (!self.busy) {
    Queue& queue = !self.transfers.empty() ? self.transfers
                   : !self.needed.empty()  ? self.needed
                                           : self.idle;
    if (queue.empty()) break;
    const StepId step = queue.pop();
    const double us = core_time(rank, step);
    if (us > 0) {
      self.busy = true;
      push(now_ + us, Event::What::kCore, rank, step, false);
    } else {
      KOLO_TRY(ended(rank, step));
    }
  }
  return {};
}

/// A rank's core is done with a step.
Status Player::ended(std::uint32_t rank, StepId step) {
  switch (program_of(rank).ops[step].kind) {
    case StepKind::kSend:
    case StepKind::kSignal:
      return post(rank, step);
    case StepKind::kReceive:
    case StepKind::kWait:
      if (--ranks_[rank].waits_for[step] == 0) finish(rank, step);
      return {};
    case StepKind::kReduce:
    case StepKind::kCopy:
      finish(rank, step);
      return {};
  }
  return {};
}

Status Player::post(std::uint32_t rank, StepId step) {
  const Program::Op& op = program_of(rank).ops[step];
  const int peer = ranks_[rank].code.peers[op.peer];
  const int peers_host = machine_.host_of(peer);
  const bool across = peers_host != machine_.host_of(static_cast<int>(rank));
  auto to = static_cast<std::uint32_t>(peer);
  int from = static_cast<int>(rank);
  if (symmetry_ != Symmetry::kNone) {  // the played host takes what its like would take
    to %= static_cast<std::uint32_t>(machine_.ranks_per_host);
    const bool turns = symmetry_ == Symmetry::kTurn;
    from = moved(machine_, symmetry_, from, turns ? machine_.hosts - peers_host : peers_host);
  }
  KOLO_ASSIGN(const StepId receive, find_receive(to, from, op));
  const Link& link = across ? machine_.across : machine_.inside;
  const double left = (across ? host_of(rank).out : ranks_[rank].out).send(now_, op.bytes);
  left_ = std::max(left_, left);
  if (program_of(rank).after(step).empty()) {
    finish(rank, step);  // when does not matter to any other step
  } else {
    push(left, Event::What::kLeft, rank, step, across);
  }
  const bool is_far = !switches_.empty() && machine_.switch_of(from) != machine_.switch_of(peer);
  push(left + varied(link.latency_us, rank, step, 1),
       is_far ? Event::What::kUp : Event::What::kComing, to, receive, across);
  return {};
}

Result<StepId> Player::find_receive(std::uint32_t to, int from, const Program::Op& sent) {
  Rank& rank = ranks_[to];
  const Program& program = *rank.code.program;
  const auto peer = std::lower_bound(rank.index_of.begin(), rank.index_of.end(),
                                     std::pair(from, std::uint32_t{0}));
  if (peer != rank.index_of.end() && peer->first == from) {
    const auto begin = program.arrivals.begin() + program.arrival_begin[peer->second];
    const auto end = program.arrivals.begin() + program.arrival_begin[peer->second + 1];
    auto found = program.arrivals.begin() + rank.expected[peer->second];
    if (found == end || found->tag != sent.tag)
      found = std::lower_bound(begin, end, sent.tag, [](const auto& arrival, std::uint32_t tag) {
        return arrival.tag < tag;
      });
    if (found != end && found->tag == sent.tag && program.ops[found->step].bytes == sent.bytes) {
      rank.expected[peer->second] =
          static_cast<std::uint32_t>(found + 1 - program.arrivals.begin());
      return found->step;
    }
  }
  return KOLO_ERROR(kInternal,
                    "rank {} sends {} bytes with tag {} to rank {}, which receives no such message",
                    from, sent.bytes, sent.tag, to);
}

Status Player::handle(const Event& event) {
  const std::uint32_t rank = event.rank;
  const Program::Op& op = program_of(rank).ops[event.step()];
  switch (event.what()) {
    case Event::What::kCore:
      ranks_[rank].busy = false;
      KOLO_TRY(ended(rank, event.step()));
      break;
    case Event::What::kLeft:
      finish(rank, event.step());
      break;
    case Event::What::kUp:
    case Event::What::kDown: {
      const bool up = event.what() == Event::What::kUp;
      Lane& lane = up ? switch_of(ranks_[rank].code.peers[op.peer]).up
                      : switch_of(static_cast<int>(rank)).down;
      const double us = static_cast<double>(op.bytes) * 1e-3 / machine_.across.gigabytes_per_second;
      push(lane.pass(now_, us, op.bytes), up ? Event::What::kDown : Event::What::kComing, rank,
           event.step(), true);
      return {};
    }
    case Event::What::kComing: {
      Lane& lane = event.across ? host_of(rank).in : ranks_[rank].in;
      const double there = lane.take(now_, op.bytes);
      push(there, Event::What::kThere, rank, event.step(), event.across);
      return {};
    }
    case Event::What::kThere:
      ranks_[rank].transfers.push(event.step());
      break;
  }
  return work(rank);
}

Error Player::stuck() const {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].remaining == 0) continue;
    const Program& program = program_of(r);
    for (StepId step = 0; step < program.ops.size(); ++step) {
      const Program::Op& op = program.ops[step];
      const bool receives = op.kind == StepKind::kReceive;
      // Posted, but nothing has come.
      if ((!receives && op.kind != StepKind::kWait) || ranks_[r].waits_for[step] != 1) continue;
      return KOLO_ERROR(kInternal,
                        "the schedules wait for ever: rank {} of {}, step {} ({} rank {}, tag {})",
                        r, machine_.ranks(), step, receives ? "receive from" : "wait for",
                        ranks_[r].code.peers[op.peer], op.tag);
    }
  }
  return KOLO_ERROR(kInternal, "the schedules wait for ever");
}

Result<Played> Player::run(const ScheduleOf& schedule_of, Widths widths) {
  load(schedule_of, widths);
  Played played;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const Program& program = program_of(r);
    played.steps += program.ops.size();
    for (StepId step = 0; step < program.ops.size(); ++step)
      if (program.ops[step].waits_for == 0) release(r, step);
  }
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) KOLO_TRY(work(r));
  while (!events_.empty()) {
    const Event event = events_.pop();
    now_ = event.at;
    KOLO_TRY(handle(event));
  }
  for (const Rank& rank : ranks_)
    if (rank.remaining > 0) return stuck();
  played.us = std::max(now_, left_);
  return played;
}

}  // namespace

Result<Played> play(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
                    Symmetry symmetry) {
  return Player(machine, symmetry).run(schedule_of, widths);
}

}  // namespace kolo::simulate
