// Handshake: what every rank tells the others before the transport connects, and the check that all
// ranks fit together. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/topology/world.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Raised whenever the handshake, control messages, tags or schedules change.
inline constexpr std::uint32_t kWireVersion = 10;

struct Handshake {
  std::uint32_t wire_version = kWireVersion;
  std::string transport;              ///< Transport::name()
  std::string address;                ///< Transport::address()
  std::vector<std::string> settings;  ///< Config::agreed_settings()
  RankInfo info;
  std::string complaint;   ///< why this rank cannot start; empty: it can
  std::int64_t clock = 0;  ///< this rank's steady clock, nanoseconds; ranks of a host have one
};

/// Collective; the result is by rank, without the settings, which are equal. All ranks get the same
/// error, the first that applies: kMismatch if two ranks differ in version, naming ranks and
/// values; kInvalidArgument if any rank has a complaint; kMismatch if two ranks differ in transport
/// or settings.
Result<std::vector<Handshake>> exchange_handshake(Bootstrap& bootstrap, Handshake mine,
                                                  Deadline deadline);

/// Replaces exchange_handshake() on a rank that cannot start, so that the others do not wait for
/// it. They get `why` as their error, with this rank's number, host and process.
void refuse_handshake(Bootstrap& bootstrap, RankInfo me, const Error& why, Deadline deadline);

/// Collective, after exchange_handshake(): if `mine` is an error on one rank, all ranks fail. The
/// others get that error with the rank's number, host and process.
Status require_all(Bootstrap& bootstrap, std::string_view phase, const RankInfo& me,
                   const Status& mine, Deadline deadline);

}  // namespace kolo
