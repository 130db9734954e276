#include "runtime/bootstrap/store.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

Result<std::string> Store::set_once(std::string_view key, std::string) {
  return KOLO_ERROR(kUnsupported, "this store cannot set '{}' as one step for all ranks", key);
}

Result<Gathered> Store::exchange(std::string_view phase, int rank, int size, std::string value,
                                 Deadline deadline) {
  KOLO_TRY(set(fmt::format("{}/{}", phase, rank), std::move(value)));
  Gathered values;
  for (int other = 0; other < size; ++other) {
    // After the deadline, get() still returns the values that are there.
    auto got = get(fmt::format("{}/{}", phase, other), deadline);
    if (got.ok()) {
      values.emplace_back(*std::move(got));
    } else if (got.error().code == ErrorCode::kTimeout) {
      values.emplace_back(std::nullopt);
    } else {
      return std::move(got).error();
    }
  }
  return values;
}

}  // namespace kolo
