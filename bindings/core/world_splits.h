// WorldSplits: the process sets of split_world(), which are made anew in each world. Private to
// bindings/core. Any thread.
#pragma once

#include "runtime/cycle/runtime.h"

#include <kolo/membership.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace kolo {

class WorldSplits {
 public:
  using Color = std::function<int(const RankPlace&)>;
  static constexpr std::size_t kMost = 64;

  std::size_t size() const;
  /// Collective over the present world. Returns the handle on this rank's set.
  Result<std::uint32_t> add(Runtime& runtime, const Color& color);
  /// The job goes on when a rank is lost: no further splits.
  void close();
  /// The world ends: until enter(), handles name nothing.
  void leave();
  /// Collective over the next world, before its other calls.
  Status enter(Runtime& runtime);
  /// Another job begins.
  void clear();
  /// See number_of_split().
  std::uint32_t number_of(std::uint32_t handle) const;

 private:
  /// Whether there may be another split.
  Status check_open() const;

  mutable std::mutex mutex_;
  std::vector<Color> colors_;                                   ///< guarded by mutex_
  bool is_closed_ = false;                                      ///< guarded by mutex_
  std::array<std::atomic<std::uint32_t>, kMost> numbers_ = {};  ///< 0: none
};

/// Those of this process.
WorldSplits& world_splits();

}  // namespace kolo
