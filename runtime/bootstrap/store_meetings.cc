#include "runtime/bootstrap/store_meetings.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace kolo {

Result<int> StoreMeetings::join(const Member& member) {
  const int last = meetings_of(member.rank);
  const bool is_here = last > 0 && tables_.at(last).has(member.rank);
  const int meeting = is_here ? last : last + 1;
  StoreTable& joining = tables_.try_emplace(meeting, size_, size_by_).first->second;
  fail_without_gone();
  const Status joined = joining.join(member);
  if (!is_here && (joined.ok() || joining.failure())) joined_[member.rank] = meeting;
  if (!joined.ok()) return joined.error();
  return meeting;
}

void StoreMeetings::note_gone(int rank) {
  gone_.insert(rank);
  fail_without_gone();
}

void StoreMeetings::fail_without_gone() {
  for (const int rank : gone_)
    for (auto table = tables_.upper_bound(meetings_of(rank)); table != tables_.end(); ++table)
      table->second.note_gone(rank);
}

int StoreMeetings::meetings_of(int rank) const {
  const auto joined = joined_.find(rank);
  return joined == joined_.end() ? 0 : joined->second;
}

StoreTable& StoreMeetings::open(int number, int size) {
  tables_.clear();
  return tables_.try_emplace(number, size, size_by_).first->second;
}

bool StoreMeetings::has_left_the_first(int rank) const {
  return joined_.count(rank) > 0 && !tables_.at(1).has(rank);
}

bool StoreMeetings::is_empty() const {
  return std::all_of(tables_.begin(), tables_.end(),
                     [](const auto& entry) { return entry.second.is_empty(); });
}

}  // namespace kolo
