#include "runtime/bootstrap/store_bootstrap.h"

#include "runtime/base/check.h"

#include <fmt/ranges.h>

namespace kolo {

Result<std::vector<std::string>> StoreBootstrap::exchange(std::string_view phase, std::string blob,
                                                          Deadline deadline) {
  KOLO_ASSIGN(Gathered gathered, store_.exchange(phase, rank_, size_, std::move(blob), deadline));
  std::vector<std::string> blobs;
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
    if (gathered[rank]) {
      blobs.push_back(*std::move(gathered[rank]));
    } else {
      missing.push_back(rank);
    }
  }
  if (missing.empty()) return blobs;
  return KOLO_ERROR(
      kTimeout,
      "rank {}: {} of {} ranks did not reach phase '{}' of the bootstrap in time: {}; "
      "see whether they started, and what they wrote (KOLO_INIT_TIMEOUT is how long ranks wait)",
      rank_, missing.size(), size_, phase, fmt::join(missing, ", "));
}

}  // namespace kolo
