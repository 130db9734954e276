#include "runtime/bootstrap/store_bootstrap.h"

#include "runtime/base/check.h"

#include <fmt/ranges.h>

namespace kolo {

Result<std::vector<std::string>> StoreBootstrap::exchange(std::string_view phase, std::string blob,
                                                          Deadline deadline) {
  KOLO_TRY(store_.set(fmt::format("{}/{}", phase, rank_), std::move(blob)));
  std::vector<std::string> blobs;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    // After the deadline this still tells who is there.
    auto value = store_.get(fmt::format("{}/{}", phase, rank), deadline);
    if (value.ok()) {
      blobs.push_back(*std::move(value));
    } else if (value.error().code == ErrorCode::kTimeout) {
      missing.push_back(rank);
    } else {
      return std::move(value).error();
    }
  }
  if (missing.empty()) return blobs;
  return KOLO_ERROR(
      kTimeout,
      "rank {}: {} of {} ranks did not reach phase '{}' of the bootstrap in time: {}; "
      "see whether they started (KOLO_INIT_TIMEOUT)",
      rank_, missing.size(), size_, phase, fmt::join(missing, ", "));
}

}  // namespace kolo
