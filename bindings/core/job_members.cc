#include "bindings/core/job_members.h"

#include "bindings/core/init_options.h"
#include "runtime/base/check.h"

#include <utility>

namespace kolo {
namespace {

/// How long the launcher may take to say who waits.
constexpr std::chrono::seconds kLauncherAnswers{5};

}  // namespace

LobbyParts JobMembers::parts(const InitOptions& options) const {
  LobbyParts parts{.secret = secret_, .patience = patience_};
  if (options.store) parts.store = adapt_store(options.store, options.group_name);
  return parts;
}

Status JobMembers::find(const RendezvousMethod& way, const std::string& secret,
                        const InitOptions& options, std::chrono::seconds heartbeat,
                        bool regrouped) {
  if (regrouped) lobby_.reset();
  if (lobby_ && (way.meeting != way_.meeting || way.path != way_.path)) {
    lobby_->leave(/*is_done=*/false);
    lobby_.reset();
  }
  way_ = way;
  secret_ = secret;
  patience_ = 2 * heartbeat;
  if (lobby_ || regrouped) return {};
  KOLO_ASSIGN(lobby_, find_lobby(way_, parts(options)));
  return {};
}

Result<bool> JobMembers::begin(const InitOptions& options) {
  if (way_.meeting != Meeting::kFile && way_.meeting != Meeting::kStore) return false;
  KOLO_TRY(check_process_sets(options, /*is_elastic=*/true));
  auto lobby = begin_lobby(way_, parts(options));
  if (!lobby.ok() && lobby.error().code == ErrorCode::kUnsupported) return false;
  if (!lobby.ok()) return std::move(lobby).error();
  lobby_ = *std::move(lobby);
  return true;
}

void JobMembers::reach_launcher() {
  if (launcher_ || way_.meeting != Meeting::kElastic) return;
  const int process = way_.rank;
  auto store = TcpStore::join(way_.endpoint, {process, process + 1, "a process that trains"},
                              secret_, Deadline::after(kLauncherAnswers));
  if (!store.ok()) return;
  launcher_ = *std::move(store);
  launcher_->be_lifeline();
}

int JobMembers::newcomers() {
  if (lobby_) {
    const auto count = lobby_->newcomers();
    return count.ok() ? *count : 0;
  }
  reach_launcher();
  if (!launcher_) return 0;
  const auto count = launcher_->newcomers(Deadline::after(kLauncherAnswers));
  if (!count.ok()) launcher_.reset();
  return count.ok() ? *count : 0;
}

void JobMembers::leave_at_exit(bool is_done) {
  if (launcher_ && is_done) launcher_->leave();
  if (lobby_ && lobby_->is_there_at_exit()) lobby_->leave(is_done);
}

}  // namespace kolo
