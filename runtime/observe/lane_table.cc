#include "runtime/observe/lane_table.h"

#include <utility>

namespace kolo {

LaneTable::Lane LaneTable::place(std::string_view& title, TraceTime begin, TraceTime end) {
  auto found = lanes_.find(title);
  if (found == lanes_.end()) {
    if (lanes_.size() >= kMaxTitles) title = kOthers;
    found = lanes_.try_emplace(std::string(title)).first;
  }
  std::vector<Lane>& lanes = found->second;
  for (Lane& lane : lanes) {
    if (lane.end > begin) continue;
    lane.end = end;
    return lane;
  }
  lanes.push_back({next_number_++, end, lanes.size(), false});
  Lane placed = lanes.back();
  placed.is_new = true;
  return placed;
}

}  // namespace kolo
