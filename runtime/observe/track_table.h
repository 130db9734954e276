// TrackTable: which track (a "thread" of the trace format) an interval is drawn in. Intervals in
// one track must not overlap, so intervals that overlap under one title get further tracks. Writer
// thread.
#pragma once

#include "runtime/observe/trace_record.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kolo {

class TrackTable {
 public:
  struct Track {
    int number = 0;
    TraceTime end = 0;       ///< end of the track's last interval
    std::size_t copies = 0;  ///< number of older tracks with the same title
    bool is_new = false;     ///< the track must be introduced in the file first
  };

  /// Further titles share one, since a program may create names without end.
  static constexpr std::size_t kMaxTitles = 4096;
  static constexpr std::string_view kOthers = "other tensors";

  /// Intervals of one title come in the order of their ends. `title` becomes kOthers if there are
  /// too many titles.
  Track assign(std::string_view& title, TraceTime begin, TraceTime end);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  std::unordered_map<std::string, std::vector<Track>, Hash, std::equal_to<>> tracks_;
  int next_number_ = 1;
};

}  // namespace kolo
