// StoreMeetings: the successive meetings over one store, each with its own table. When a rank joins
// for the n-th time, it joins the n-th meeting. So leftovers of a failed meeting do not harm the
// next, and ranks that try again meet again. No sockets, no clock. Used by the server's thread.
#pragma once

#include "runtime/bootstrap/store_table.h"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace kolo {

class StoreMeetings {
 public:
  /// `size`: number of ranks, as `size_by` says; 0: as the first rank of each meeting says.
  StoreMeetings(int size, std::string size_by) : size_(size), size_by_(std::move(size_by)) {}

  /// Returns the number of the meeting, from 1. Errors: StoreTable::join(). A rank that learns that
  /// its meeting has failed counts as having joined; a second process of a rank does not.
  Result<int> join(const Member& member);
  /// The rank's process has ended in order: meetings that it has not joined fail.
  void note_gone(int rank);
  /// Opens meeting `number` of `size` ranks, in which no rank is yet, and forgets earlier ones.
  StoreTable& open(int number, int size);
  /// The table of a meeting that a rank has joined.
  StoreTable& table(int meeting) { return tables_.at(meeting); }
  const StoreTable& table(int meeting) const { return tables_.at(meeting); }

  /// Whether the rank has joined the first meeting and left it again.
  bool has_left_the_first(int rank) const;
  bool has_anyone_met_in_the_first() const {
    const auto first = tables_.find(1);
    return first != tables_.end() && first->second.has_anyone_met();
  }
  /// Whether all meetings are empty.
  bool is_empty() const;

 private:
  /// Fails the meetings that a rank whose process has ended has not joined.
  void fail_without_gone();
  /// Number of meetings that the rank has joined.
  int meetings_of(int rank) const;

  const int size_;
  const std::string size_by_;  ///< who told the size
  std::map<int, StoreTable> tables_;
  std::map<int, int> joined_;  ///< number of meetings joined, by rank
  std::set<int> gone_;         ///< ranks whose processes have ended
};

}  // namespace kolo
