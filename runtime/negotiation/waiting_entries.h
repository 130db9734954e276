// WaitingEntries: entries of this rank that are not agreed on yet. An entry first waits for its
// announcement, then for the agreement. It waits by its response cache slot if a bit announced it,
// else by its name. Progress token holder only; owned by the controller.
#pragma once

#include "runtime/submission/entry.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo {

class WaitingEntries {
 public:
  void add(EntryPtr entry) { unannounced_.push_back(std::move(entry)); }
  bool has_unannounced() const { return !unannounced_.empty(); }
  /// Precondition: has_unannounced().
  const Entry& first_unannounced() const { return *unannounced_.front(); }

  /// Calls `announce` for every entry that is not announced yet. The entry then waits by the
  /// returned slot, or by its name if there is none.
  void announce(const std::function<std::optional<std::uint32_t>(Entry&)>& announce);
  /// As announce(), but up to the first entry for which there is no slot. That one and those after
  /// it are not announced. True if there is none.
  bool announce_by_slot(const std::function<std::optional<std::uint32_t>(Entry&)>& announce);
  /// What was announced by slots counts as not announced.
  void take_back();

  /// Takes the announced entry of this name; null if there is none. `slot` is the name's slot, if
  /// it has one.
  EntryPtr take(const std::string& name, std::optional<std::uint32_t> slot);
  /// What needs that rank of the communicator, and waits: "tensor 'fc1.weight' and 3 more"; empty
  /// if nothing does. A call by some ranks alone needs these, and rank 0, which decides.
  std::string describe_calls_of(int rank) const;
  /// Takes the removals of process sets, by their ranks alone, that need this rank.
  std::vector<EntryPtr> take_removals_of(int rank);
  /// Takes all entries, announced or not, in no order.
  std::vector<EntryPtr> take_all();

  bool empty() const { return unannounced_.empty() && in_slots_ == 0 && by_name_.empty(); }
  std::size_t size() const { return unannounced_.size() + in_slots_ + by_name_.size(); }
  bool has_announced() const { return in_slots_ > 0 || !by_name_.empty(); }
  /// Whether an announced entry waits by this name.
  bool waits_by_name(const std::string& name) const { return by_name_.contains(name); }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const EntryPtr& entry : unannounced_) visit(*entry);
    for (const auto& entry : by_slot_) {
      if (entry) visit(*entry);
    }
    for (const auto& [name, entry] : by_name_) visit(*entry);
  }

 private:
  void wait_by(std::uint32_t slot, EntryPtr entry);

  std::vector<EntryPtr> unannounced_;
  std::vector<EntryPtr> by_slot_;  ///< null where no entry waits
  std::size_t in_slots_ = 0;
  std::unordered_map<std::string, EntryPtr> by_name_;
};

}  // namespace kolo
