#include "runtime/bootstrap/handshake.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

// The fields of a handshake's blob. The settings follow them.
enum Field : std::size_t {
  kVersion,
  kTransport,
  kAddress,
  kInfo,
  kComplaint,
  kClock,
  kFirstSetting
};

// The version comes first, so that ranks can compare it whatever else differs.
std::string encode(const Handshake& handshake) {
  std::vector<std::string> fields = {std::to_string(handshake.wire_version),
                                     handshake.transport,
                                     handshake.address,
                                     handshake.info.serialize(),
                                     handshake.complaint,
                                     std::to_string(handshake.clock)};
  fields.insert(fields.end(), handshake.settings.begin(), handshake.settings.end());
  return join_fields(fields);
}

/// Ok if all values are equal, else which ranks have which value: "ranks 0, 2 have 'a', rank 1 has
/// 'b'".
Status require_equal(std::string_view what, const std::vector<std::string>& values) {
  std::map<std::string_view, std::vector<std::size_t>> ranks_by_value;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    ranks_by_value[values[rank]].push_back(rank);
  }
  if (ranks_by_value.size() <= 1) return {};
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_by_value) {
    const std::size_t shown = std::min(ranks.size(), kShown);
    const bool one = ranks.size() == 1;
    parts.push_back(fmt::format("{} {}{} {} '{}'", one ? "rank" : "ranks",
                                fmt::join(ranks.begin(), ranks.begin() + shown, ", "),
                                shown < ranks.size() ? ", …" : "", one ? "has" : "have", value));
  }
  return KOLO_ERROR(kMismatch,
                    "ranks disagree on {}: {}; start all ranks with the same kolo and the same "
                    "settings",
                    what, fmt::join(parts, "; "));
}

using Fields = std::vector<std::string>;

std::vector<std::string> column(const std::vector<Fields>& rows, std::size_t index) {
  std::vector<std::string> values;
  for (const Fields& row : rows) values.push_back(row[index]);
  return values;
}

Error not_a_handshake(std::size_t rank, std::size_t bytes) {
  return KOLO_ERROR(kMismatch, "rank {} sent a handshake of {} bytes that is not kolo's", rank,
                    bytes);
}

std::string cannot_start(int rank, const RankInfo& info, const Error& why) {
  return fmt::format("rank {} (host {}, pid {}) cannot start: {}", rank, info.hostname, info.pid,
                     why.message);
}

/// The fields of each rank's handshake.
Result<std::vector<Fields>> split_rows(const std::vector<std::string>& blobs) {
  std::vector<Fields> rows(blobs.size());
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!split_fields(blobs[rank], rows[rank]) || rows[rank].empty()) {
      return not_a_handshake(rank, blobs[rank].size());
    }
  }
  return rows;
}

}  // namespace

Result<std::vector<Handshake>> exchange_handshake(Bootstrap& bootstrap, Handshake mine,
                                                  Deadline deadline) {
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("handshake", encode(mine), deadline));
  KOLO_ASSIGN(std::vector<Fields> rows, split_rows(blobs));
  KOLO_TRY(require_equal("the wire version", column(rows, kVersion)));

  // All ranks have the same version from here on, so a handshake of another form is malformed.
  std::vector<std::string> setting_counts;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].size() < kFirstSetting) return not_a_handshake(rank, blobs[rank].size());
    setting_counts.push_back(std::to_string(rows[rank].size() - kFirstSetting));
  }
  // A rank with a complaint may have filled in nothing else.
  for (const Fields& row : rows) {
    if (!row[kComplaint].empty()) return KOLO_ERROR(kInvalidArgument, "{}", row[kComplaint]);
  }
  KOLO_TRY(require_equal("the transport", column(rows, kTransport)));
  KOLO_TRY(require_equal("the number of settings", setting_counts));
  for (std::size_t field = kFirstSetting; field < rows[0].size(); ++field) {
    KOLO_TRY(require_equal("a setting", column(rows, field)));
  }

  std::vector<Handshake> all(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    Fields& row = rows[rank];
    all[rank].wire_version = mine.wire_version;
    all[rank].transport = std::move(row[kTransport]);
    all[rank].address = std::move(row[kAddress]);
    if (!parse_rank_info(row[kInfo], all[rank].info)) {
      return not_a_handshake(rank, blobs[rank].size());
    }
    all[rank].complaint = std::move(row[kComplaint]);
    all[rank].clock = std::strtoll(row[kClock].c_str(), nullptr, 10);
    all[rank].settings.assign(row.begin() + kFirstSetting, row.end());
  }
  return all;
}

void refuse_handshake(Bootstrap& bootstrap, RankInfo me, const Error& why, Deadline deadline) {
  Handshake mine;
  mine.complaint = cannot_start(bootstrap.rank(), me, why);
  mine.info = std::move(me);
  // This rank fails anyway, whatever the others answer.
  static_cast<void>(exchange_handshake(bootstrap, std::move(mine), deadline));
}

Status require_all(Bootstrap& bootstrap, std::string_view phase, const RankInfo& me,
                   const Status& mine, Deadline deadline) {
  auto complaint = mine.ok() ? std::string() : cannot_start(bootstrap.rank(), me, mine.error());
  const auto complaints = bootstrap.exchange(phase, std::move(complaint), deadline);
  if (!mine.ok()) return mine;
  if (!complaints.ok()) return complaints.error();
  for (const std::string& other : *complaints) {
    if (!other.empty()) return KOLO_ERROR(kInvalidArgument, "{}", other);
  }
  return {};
}

}  // namespace kolo
