// Handshake: what every rank tells the others before the transport stands, and the check that they
// fit together. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/topology/world.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Raised whenever control messages, tags or schedules change.
inline constexpr std::uint32_t kWireVersion = 6;

struct Handshake {
  std::uint32_t wire_version = kWireVersion;
  std::string transport;              ///< Transport::name()
  std::string address;                ///< Transport::address()
  std::vector<std::string> settings;  ///< Config::agreed_settings()
  RankInfo info;
  std::string complaint;     ///< what keeps this rank from starting; empty: nothing
  bool wants_clock = false;  ///< it keeps a timeline: the ranks compare their clocks
};

/// Collective; by rank. If any two ranks differ in version, kMismatch on every rank, naming ranks
/// and values; then a complaint of any rank is kInvalidArgument on every rank; then kMismatch if
/// two differ in transport or settings.
Result<std::vector<Handshake>> exchange_handshake(Bootstrap& bootstrap, Handshake mine,
                                                  Deadline deadline);

/// In place of it on a rank that cannot start, so that the others do not wait for it: `why` is
/// their error, with this rank's number, host and process.
void refuse_handshake(Bootstrap& bootstrap, RankInfo me, const Error& why, Deadline deadline);

/// Collective, after it: what keeps one rank from going on, `mine`, is the error of all, which say
/// of others what refuse_handshake() does.
Status require_all(Bootstrap& bootstrap, std::string_view phase, const RankInfo& me,
                   const Status& mine, Deadline deadline);

}  // namespace kolo
