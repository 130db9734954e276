#include "runtime/negotiation/waiting_entries.h"

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace kolo {
namespace {

/// Whether the call needs that rank of the communicator.
bool needs(const Entry& entry, int rank) {
  const Shape& ranks = entry.signature.shape;
  return !is_by_its_ranks(entry.signature) || rank == 0 ||
         std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

void WaitingEntries::announce(const std::function<std::optional<std::uint32_t>(Entry&)>& announce) {
  for (EntryPtr& entry : unannounced_) {
    const std::optional<std::uint32_t> slot = announce(*entry);
    if (!slot) {
      const std::string& name = entry->name;
      const bool inserted = by_name_.emplace(name, std::move(entry)).second;
      KOLO_CHECK(inserted);  // the tensor table admits a name only once
      continue;
    }
    wait_by(*slot, std::move(entry));
  }
  unannounced_.clear();
}

bool WaitingEntries::announce_by_slot(
    const std::function<std::optional<std::uint32_t>(Entry&)>& announce) {
  auto next = unannounced_.begin();
  for (; next != unannounced_.end(); ++next) {
    const std::optional<std::uint32_t> slot = announce(**next);
    if (!slot) break;
    wait_by(*slot, std::move(*next));
  }
  unannounced_.erase(unannounced_.begin(), next);
  return unannounced_.empty();
}

void WaitingEntries::wait_by(std::uint32_t slot, EntryPtr entry) {
  if (slot >= by_slot_.size()) by_slot_.resize(slot + 1);
  KOLO_CHECK(!by_slot_[slot]);
  by_slot_[slot] = std::move(entry);
  ++in_slots_;
}

void WaitingEntries::take_back() {
  std::vector<EntryPtr> entries;
  for (EntryPtr& entry : by_slot_)
    if (entry) entries.push_back(std::move(entry));
  in_slots_ = 0;
  unannounced_.insert(unannounced_.begin(), std::make_move_iterator(entries.begin()),
                      std::make_move_iterator(entries.end()));
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

std::string WaitingEntries::describe_calls_of(int rank) const {
  const std::string* first = nullptr;
  int count = 0;
  for_each([&](const Entry& entry) {
    if (!needs(entry, rank)) return;
    ++count;
    if (first == nullptr || entry.name < *first) first = &entry.name;
  });
  if (count == 0) return {};
  std::string text = fmt::format("tensor '{}'", *first);
  if (count > 1) text += fmt::format(" and {} more", count - 1);
  return text;
}

std::vector<EntryPtr> WaitingEntries::take_removals_of(int rank) {
  std::vector<std::string> names;
  for_each([&](const Entry& entry) {
    const bool removes = entry.signature.kind == OperationKind::kRemoveProcessSet;
    if (removes && is_by_its_ranks(entry.signature) && needs(entry, rank))
      names.push_back(entry.name);
  });
  std::vector<EntryPtr> removals;
  for (const std::string& name : names)
    if (EntryPtr entry = take(name, std::nullopt)) removals.push_back(std::move(entry));
  return removals;
}

}  // namespace kolo
