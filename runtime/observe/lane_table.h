// LaneTable: which lane (a "thread" of the trace format) an interval is drawn in. Slices of a lane
// must not overlap, so what runs at once under one title gets further lanes. Writer thread.
#pragma once

#include "runtime/observe/trace_record.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kolo {

class LaneTable {
 public:
  struct Lane {
    int number = 0;
    TraceTime end = 0;       ///< of its last interval
    std::size_t copies = 0;  ///< how many lanes of this title came before it
    bool is_new = false;     ///< it must be introduced first
  };

  /// More titles than this share one: a program may make up names without end.
  static constexpr std::size_t kMaxTitles = 4096;
  static constexpr std::string_view kOthers = "other tensors";

  /// Intervals of a title come in order of their ends. `title` becomes kOthers if there are too
  /// many.
  Lane place(std::string_view& title, TraceTime begin, TraceTime end);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  std::unordered_map<std::string, std::vector<Lane>, Hash, std::equal_to<>> lanes_;
  int next_number_ = 1;
};

}  // namespace kolo
