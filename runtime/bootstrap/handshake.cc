#include "runtime/bootstrap/handshake.h"

#include "runtime/base/check.h"
#include "runtime/base/blob.h"

#include <utility>

namespace kolo {
namespace {

// The version comes first, so that it can be compared whatever else has changed.
std::string encode(const Handshake& handshake) {
  std::vector<std::string> fields = {std::to_string(handshake.wire_version), handshake.transport,
                                     handshake.address, handshake.info.serialize()};
  fields.insert(fields.end(), handshake.settings.begin(), handshake.settings.end());
  return join_fields(fields);
}

Status differ(std::string_view what, int a, std::string_view value_a, int b,
              std::string_view value_b) {
  return KOLO_ERROR(kMismatch,
                    "ranks disagree on {}: rank {} has {}, rank {} has {}; start all ranks with the "
                    "same kolo and the same settings",
                    what, a, value_a, b, value_b);
}

}  // namespace

Result<std::vector<Handshake>> exchange_handshake(Bootstrap& bootstrap, Handshake mine,
                                                  Deadline deadline) {
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("handshake", encode(mine), deadline));
  std::vector<std::vector<std::string>> fields(blobs.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!split_fields(blobs[i], fields[i]) || fields[i].size() < 4) {
      return KOLO_ERROR(kMismatch, "rank {} sent a handshake of {} bytes that is not kolo's", rank,
                        blobs[i].size());
    }
    if (fields[i][0] != fields[0][0]) {
      return std::move(differ("the wire version", 0, fields[0][0], rank, fields[i][0])).error();
    }
  }
  std::vector<Handshake> all(blobs.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const int rank = static_cast<int>(i);
    Handshake& handshake = all[i];
    handshake.transport = fields[i][1];
    handshake.address = fields[i][2];
    handshake.settings.assign(fields[i].begin() + 4, fields[i].end());
    if (!parse_rank_info(fields[i][3], handshake.info)) {
      return KOLO_ERROR(kMismatch, "rank {} describes itself in an unknown form", rank);
    }
    const Handshake& first = all[0];
    if (handshake.transport != first.transport) {
      return std::move(differ("the transport", 0, first.transport, rank, handshake.transport))
          .error();
    }
    if (handshake.settings.size() != first.settings.size()) {
      return std::move(differ("the number of settings", 0, std::to_string(first.settings.size()),
                              rank, std::to_string(handshake.settings.size())))
          .error();
    }
    for (std::size_t s = 0; s < first.settings.size(); ++s) {
      if (handshake.settings[s] == first.settings[s]) continue;
      return std::move(differ("a setting", 0, first.settings[s], rank, handshake.settings[s]))
          .error();
    }
  }
  return all;
}

}  // namespace kolo
