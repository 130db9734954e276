#include "runtime/bootstrap/store_meetings.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace kolo {

Result<int> StoreMeetings::join(const Member& member) {
  const auto before = joined_.find(member.rank);
  const int last = before == joined_.end() ? 0 : before->second;
  const bool is_here = last > 0 && tables_.at(last).has(member.rank);
  const int meeting = is_here ? last : last + 1;
  StoreTable& joining = tables_.try_emplace(meeting, size_, size_by_).first->second;
  const Status joined = joining.join(member);
  if (!is_here && (joined.ok() || joining.failure())) joined_[member.rank] = meeting;
  if (!joined.ok()) return joined.error();
  return meeting;
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
