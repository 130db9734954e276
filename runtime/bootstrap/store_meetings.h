// StoreMeetings: the meetings of one store, one after the other, each with a table of its own: the
// n-th time that a rank joins, it joins the n-th. What a failed meeting has left harms none that
// follows, and ranks that try again meet again. No sockets, no clock. Used by the server's thread.
#pragma once

#include "runtime/bootstrap/store_table.h"

#include <map>
#include <string>
#include <utility>

namespace kolo {

class StoreMeetings {
 public:
  /// `size`: number of ranks, known by `size_by`; 0: as the first one of each meeting says.
  StoreMeetings(int size, std::string size_by) : size_(size), size_by_(std::move(size_by)) {}

  /// The number of the meeting, from 1. As StoreTable::join(); a rank that hears that its meeting
  /// has failed has been in it, a second process of a rank has not.
  Result<int> join(const Member& member);
  /// Of a meeting that a rank has joined.
  StoreTable& table(int meeting) { return tables_.at(meeting); }
  const StoreTable& table(int meeting) const { return tables_.at(meeting); }

  /// Whether a rank has been in the first one and is not any more.
  bool has_left_the_first(int rank) const;
  bool has_anyone_met_in_the_first() const {
    const auto first = tables_.find(1);
    return first != tables_.end() && first->second.has_anyone_met();
  }
  /// Whether no rank is in any of them.
  bool is_empty() const;

 private:
  const int size_;
  const std::string size_by_;  ///< who said so
  std::map<int, StoreTable> tables_;
  std::map<int, int> joined_;  ///< by rank, how many
};

}  // namespace kolo
