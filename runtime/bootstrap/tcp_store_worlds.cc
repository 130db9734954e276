// The part of TcpStoreServer that hears of ends from the launcher, and makes the worlds of an
// elastic job. See Lobby.
#include "runtime/base/check.h"
#include "runtime/bootstrap/tcp_store_connection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace kolo {

using std::chrono::seconds;

namespace {

/// For a process that the launcher has seen end although it lives, as when the connection to its
/// host broke. What it knows may differ from what the others know.
Fields refuse_lost(int process) {
  return error_reply(KOLO_ERROR(kAborted,
                                "kolo-run has taken process {} for lost, and the others go on "
                                "without it; see what kolo-run wrote",
                                process));
}

}  // namespace

void TcpStoreServer::note_start(int process, int node) {
  const std::lock_guard lock(mutex_);
  lobby_->start(process);
  if (node > 0) nodes_.processes[process] = node;
}

void TcpStoreServer::note_end(int process, bool is_done) {
  {
    const std::lock_guard lock(mutex_);
    lobby_->end(process, is_done);
  }
  waker_.wake();
}

void TcpStoreServer::note_rank_end(int rank) {
  {
    const std::lock_guard lock(mutex_);
    gone_.push_back(rank);
  }
  waker_.wake();
}

bool TcpStoreServer::has_each_node() const {
  const std::lock_guard lock(mutex_);
  return has_each_node_;
}

bool TcpStoreServer::is_in_world(int process) const {
  const std::lock_guard lock(mutex_);
  return lobby_->is_member(process);
}

std::vector<int> TcpStoreServer::members() const {
  const std::lock_guard lock(mutex_);
  return lobby_->members();
}

bool TcpStoreServer::has_lost_world() const {
  const std::lock_guard lock(mutex_);
  return lobby_->is_lost();
}

bool TcpStoreServer::is_elastic() const {
  const std::lock_guard lock(mutex_);
  return is_elastic_;
}

std::optional<bool> TcpStoreServer::has_succeeded() const {
  const std::lock_guard lock(mutex_);
  if (lobby_->generation() == 0) return std::nullopt;
  const int done = lobby_->done();
  return is_elastic_ ? done > 0 : done == static_cast<int>(lobby_->members().size());
}

bool TcpStoreServer::has_lost_all() const {
  const std::lock_guard lock(mutex_);
  return lobby_->has_lost() && lobby_->living() == 0;
}

std::vector<int> TcpStoreServer::late(seconds patience) const {
  const std::lock_guard lock(mutex_);
  return late_locked(patience);
}

std::vector<int> TcpStoreServer::late_locked(seconds patience) const {
  if (!missing_since_ || Deadline::Clock::now() < missing_since_->second + patience) return {};
  return missing_since_->first;
}

void TcpStoreServer::await_world(Connection& connection, bool is_new) {
  const std::lock_guard lock(mutex_);
  if (!lobby_->is_living(*connection.process)) {
    connection.send(to_frame(refuse_lost(*connection.process)));
    return;
  }
  if (!is_new || lobby_->generation() == 0 || lobby_->is_member(*connection.process)) {
    lobby_->arrive(*connection.process);
    connection.awaits_world = true;
    return;
  }
  connection.send(to_frame({std::string(kOkReply), "0", "0", "1"}));
}

void TcpStoreServer::end_late() {
  if (options_.patience.count() == 0) return;
  for (const int process : late_locked(options_.patience)) {
    lobby_->end(process, /*is_done=*/false);
    if (!options_.warn) continue;
    options_.warn(fmt::format(
        "the others have waited {} s (--patience) for process {}; they go on without it",
        options_.patience.count(), process));
  }
}

void TcpStoreServer::note_missing() {
  // The first world has the time that init() has.
  auto missing = lobby_->generation() > 0 ? lobby_->missing() : std::vector<int>();
  if (missing.empty()) {
    missing_since_.reset();
  } else if (!missing_since_ || missing_since_->first != missing) {
    missing_since_.emplace(std::move(missing), Deadline::Clock::now());
  }
}

void TcpStoreServer::convene() {
  if (!lobby_) return;
  const std::lock_guard lock(mutex_);
  end_late();
  for (Connection& c : connections_) {
    if (!c.awaits_world || lobby_->is_living(*c.process)) continue;
    c.awaits_world = false;
    c.send(to_frame(refuse_lost(*c.process)));
  }
  const auto world = lobby_->convene();
  note_missing();
  if (!world) return;
  const int generation = lobby_->generation();
  const auto size = static_cast<int>(world->size());
  StoreTable& table = meetings_.open(generation, size);
  complete_.clear();
  for (Connection& c : connections_) {
    if (!c.awaits_world) {
      c.rank.reset();  // that world is over
      continue;
    }
    const auto at = std::find(world->begin(), world->end(), *c.process);
    c.rank = static_cast<int>(at - world->begin());
    c.meeting = generation;
    c.awaits_world = false;
    const Status joined =
        table.join({*c.rank, size, fmt::format("process {} of the job", *c.process)});
    KOLO_CHECK(joined.ok());
    c.send(to_frame({std::string(kOkReply), std::to_string(generation), std::to_string(*c.rank),
                     std::to_string(size)}));
  }
}

std::optional<Fields> TcpStoreServer::refuse_world(const Connection& c) {
  const std::lock_guard lock(mutex_);
  const bool is_in_vain = options_.patience.count() > 0 && !lobby_->is_enough();
  if (!c.deadline.expired() && !is_in_vain) return std::nullopt;
  const auto missing = lobby_->missing();
  const int lacking = lobby_->lacking();
  lobby_->leave(*c.process);
  if (is_in_vain) {
    return error_reply(KOLO_ERROR(
        kAborted,
        "{} of at least {} processes (kolo-run --min-np) are left, and this launcher starts none "
        "anew: begin again from a checkpoint",
        lobby_->living(), options_.least));
  }
  return error_reply(
      missing.empty()
          ? KOLO_ERROR(kTimeout,
                       "no world could be made in time: {} more processes are needed for the "
                       "smallest one (kolo-run --min-np); see what the others wrote, and whether "
                       "kolo-run may start more (--restarts)",
                       lacking)
          : KOLO_ERROR(kTimeout, "no world could be made in time: processes {} did not come",
                       fmt::join(missing, ", ")));
}

}  // namespace kolo
