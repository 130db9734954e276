#include "runtime/negotiation/waiting_entries.h"

#include "runtime/base/check.h"

#include <iterator>
#include <utility>

namespace kolo {

void WaitingEntries::announce(const std::function<std::optional<std::uint32_t>(Entry&)>& announce) {
  for (EntryPtr& entry : unannounced_) {
    const std::optional<std::uint32_t> slot = announce(*entry);
    if (!slot) {
      const std::string& name = entry->name;
      const bool inserted = by_name_.emplace(name, std::move(entry)).second;
      KOLO_CHECK(inserted);  // the tensor table admits a name only once
      continue;
    }
    if (*slot >= by_slot_.size()) by_slot_.resize(*slot + 1);
    KOLO_CHECK(!by_slot_[*slot]);
    by_slot_[*slot] = std::move(entry);
    ++in_slots_;
  }
  unannounced_.clear();
}

EntryPtr WaitingEntries::take(const std::string& name, std::optional<std::uint32_t> slot) {
  if (slot && *slot < by_slot_.size() && by_slot_[*slot]) {
    --in_slots_;
    return std::move(by_slot_[*slot]);
  }
  auto node = by_name_.extract(name);
  if (node.empty()) return nullptr;
  return std::move(node.mapped());
}

std::vector<EntryPtr> WaitingEntries::take_all() {
  std::vector<EntryPtr> entries = std::exchange(unannounced_, {});
  for (auto& entry : by_slot_) {
    if (entry) entries.push_back(std::move(entry));
  }
  in_slots_ = 0;
  for (auto& [name, entry] : by_name_) entries.push_back(std::move(entry));
  by_name_.clear();
  return entries;
}

}  // namespace kolo
