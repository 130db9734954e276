#include "runtime/bootstrap/handshake.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/base/fnv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

// The fields of a handshake's blob.
enum Field : std::size_t {
  kVersion,
  kTransport,
  kAddress,
  kInfo,
  kComplaint,
  kClock,
  kSettings,  ///< a digest: all ranks have the same settings but where something is wrong
  kFields
};

std::string digest(const std::vector<std::string>& settings) {
  return fmt::format("{:016x}", fnv1a(join_fields(settings)));
}

// The version comes first, so that ranks can compare it whatever else differs.
std::string encode(const Handshake& handshake) {
  return join_fields({std::to_string(handshake.wire_version), handshake.transport,
                      handshake.address, handshake.info.serialize(), handshake.complaint,
                      std::to_string(handshake.clock), digest(handshake.settings)});
}

/// What each rank has where all must have the same.
class Values {
 public:
  explicit Values(std::string_view what) : what_(what) {}

  /// Takes the value of the next rank.
  void add(const std::string& value) { ranks_by_value_[value].push_back(ranks_++); }
  bool differ() const { return ranks_by_value_.size() > 1; }
  /// Ok if all values are equal, else which ranks have which value: "ranks 0, 2 have 'a', rank 1
  /// has 'b'".
  Status require_equal() const;

 private:
  const std::string_view what_;
  std::map<std::string, std::vector<std::size_t>> ranks_by_value_;
  std::size_t ranks_ = 0;
};

Status Values::require_equal() const {
  if (!differ()) return {};
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_by_value_) {
    const std::size_t shown = std::min(ranks.size(), kShown);
    const bool one = ranks.size() == 1;
    parts.push_back(fmt::format("{} {}{} {} '{}'", one ? "rank" : "ranks",
                                fmt::join(ranks.begin(), ranks.begin() + shown, ", "),
                                shown < ranks.size() ? ", …" : "", one ? "has" : "have", value));
  }
  return KOLO_ERROR(kMismatch,
                    "ranks disagree on {}: {}; start all ranks with the same kolo and the same "
                    "settings",
                    what_, fmt::join(parts, "; "));
}

Error not_a_handshake(std::size_t rank, std::size_t bytes) {
  return KOLO_ERROR(kMismatch, "rank {} sent a handshake of {} bytes that is not kolo's", rank,
                    bytes);
}

std::string cannot_start(int rank, const RankInfo& info, const Error& why) {
  return fmt::format("rank {} (host {}, pid {}) cannot start: {}", rank, info.hostname, info.pid,
                     why.message);
}

/// Collective: which setting differs, on which ranks.
Status compare_settings(Bootstrap& bootstrap, const std::vector<std::string>& mine,
                        Deadline deadline) {
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("settings", join_fields(mine), deadline));
  std::vector<std::vector<std::string>> rows(blobs.size());
  Values counts("the number of settings");
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (!split_fields(blobs[rank], rows[rank])) return not_a_handshake(rank, blobs[rank].size());
    counts.add(std::to_string(rows[rank].size()));
  }
  KOLO_TRY(counts.require_equal());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    Values values("a setting");
    for (const auto& row : rows) values.add(row[i]);
    KOLO_TRY(values.require_equal());
  }
  return {};
}

/// False if the fields are not those of a handshake.
bool take_fields(std::vector<std::string> fields, Handshake& handshake) {
  if (fields.size() != kFields || !parse_rank_info(fields[kInfo], handshake.info)) return false;
  handshake.transport = std::move(fields[kTransport]);
  handshake.address = std::move(fields[kAddress]);
  handshake.complaint = std::move(fields[kComplaint]);
  handshake.clock = std::strtoll(fields[kClock].c_str(), nullptr, 10);
  return true;
}

}  // namespace

// Nothing here keeps what all ranks have alike: of many ranks it would be most of the memory.
Result<std::vector<Handshake>> exchange_handshake(Bootstrap& bootstrap, Handshake mine,
                                                  Deadline deadline) {
  KOLO_ASSIGN(auto blobs, bootstrap.exchange("handshake", encode(mine), deadline));
  std::vector<Handshake> all(blobs.size());
  Values versions("the wire version");
  Values transports("the transport");
  Values settings("the settings");
  std::optional<Error> malformed;  // the first such rank
  std::string complaint;           // the first one
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    const std::string blob = std::move(blobs[rank]);
    std::vector<std::string> fields;
    if (!split_fields(blob, fields) || fields.empty()) return not_a_handshake(rank, blob.size());
    versions.add(fields[kVersion]);
    if (fields.size() == kFields) settings.add(fields[kSettings]);
    if (!take_fields(std::move(fields), all[rank])) {
      if (!malformed) malformed = not_a_handshake(rank, blob.size());
      continue;
    }
    transports.add(all[rank].transport);
    // A rank with a complaint may have filled in nothing else.
    if (complaint.empty()) complaint = std::move(all[rank].complaint);
  }
  // Ranks of another version may have other fields.
  KOLO_TRY(versions.require_equal());
  if (malformed) return *std::move(malformed);
  if (!complaint.empty()) return KOLO_ERROR(kInvalidArgument, "{}", complaint);
  KOLO_TRY(transports.require_equal());
  if (settings.differ()) {
    KOLO_TRY(compare_settings(bootstrap, mine.settings, deadline));
    return settings.require_equal().error();
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
