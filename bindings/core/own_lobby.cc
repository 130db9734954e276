#include "bindings/core/own_lobby.h"

#include "bindings/core/init_options.h"
#include "runtime/base/check.h"

#include <utility>

namespace kolo {

LobbyParts OwnLobby::parts(const InitOptions& options) const {
  LobbyParts parts{.secret = secret_, .patience = patience_};
  if (options.store) parts.store = adapt_store(options.store, options.group_name);
  return parts;
}

Status OwnLobby::find(const RendezvousMethod& way, const InitOptions& options,
                      const std::string& secret, std::chrono::seconds heartbeat) {
  if (lobby_ && (way.meeting != way_.meeting || way.path != way_.path)) {
    lobby_->leave(/*is_done=*/false);
    lobby_.reset();
  }
  way_ = way;
  secret_ = secret;
  patience_ = 2 * heartbeat;
  if (lobby_) return {};
  KOLO_ASSIGN(lobby_, find_lobby(way_, parts(options)));
  return {};
}

Result<bool> OwnLobby::begin(const InitOptions& options) {
  if (way_.meeting != Meeting::kFile && way_.meeting != Meeting::kStore) return false;
  KOLO_TRY(check_process_sets(options, /*is_elastic=*/true));
  auto lobby = begin_lobby(way_, parts(options));
  if (!lobby.ok() && lobby.error().code == ErrorCode::kUnsupported) return false;
  if (!lobby.ok()) return std::move(lobby).error();
  lobby_ = *std::move(lobby);
  return true;
}

int OwnLobby::newcomers() {
  const auto count = lobby_->newcomers();
  return count.ok() ? *count : 0;
}

void OwnLobby::leave_at_exit(bool is_done) {
  if (lobby_ && lobby_->is_there_at_exit()) lobby_->leave(is_done);
}

}  // namespace kolo
