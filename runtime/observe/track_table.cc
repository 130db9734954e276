#include "runtime/observe/track_table.h"

#include <utility>

namespace kolo {

TrackTable::Track TrackTable::assign(std::string_view& title, TraceTime begin, TraceTime end) {
  auto found = tracks_.find(title);
  if (found == tracks_.end()) {
    if (tracks_.size() >= kMaxTitles) title = kOthers;
    found = tracks_.try_emplace(std::string(title)).first;
  }
  std::vector<Track>& tracks = found->second;
  for (Track& track : tracks) {
    if (track.end > begin) continue;
    track.end = end;
    return track;
  }
  tracks.push_back({next_number_++, end, tracks.size(), false});
  Track track = tracks.back();
  track.is_new = true;
  return track;
}

}  // namespace kolo
