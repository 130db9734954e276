// StoreTable: what the TCP store's server knows: values, who is here, and the failure that ended
// the meeting, if any. No sockets, no clock. Used by the server's thread.
#pragma once

#include "runtime/bootstrap/store_wire.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class StoreTable {
 public:
  /// `size`: number of ranks, as `size_by` says; 0: as the first one says.
  explicit StoreTable(int size, std::string size_by = {})
      : size_(size), size_by_(std::move(size_by)) {}

  /// kMismatch if the ranks disagree on their number: that fails the meeting for all. A second
  /// process with one rank is kInvalidArgument for that process alone.
  Status join(const Member& member);
  /// A rank that goes in the midst of the meeting fails it for all.
  void leave(int rank, bool orderly);

  /// It goes because another rank, or a link to it, is lost: that fails the meeting for all.
  void give_up(int rank, Error why);

  /// kInvalidArgument if the key is there.
  Status set(std::string_view key, std::string value);
  /// Null: not there.
  const std::string* find(std::string_view key) const;

  /// Sets "phase/rank". As set().
  Status contribute(std::string_view phase, int rank, std::string value);
  bool is_complete(std::string_view phase) const;
  /// By rank: '1' and the value, or '0' if that rank has not contributed.
  std::vector<std::string> contributions(std::string_view phase) const;

  const std::optional<Error>& failure() const { return failure_; }
  bool has(int rank) const { return members_.count(rank) > 0; }
  bool is_empty() const { return members_.empty(); }
  /// Whether every rank is here or has been.
  bool all_have_come() const {
    return size_ > 0 && seen_.size() == static_cast<std::size_t>(size_);
  }

 private:
  void fail(Error error);

  int size_;
  std::string size_by_;  ///< who said so
  std::map<int, Member> members_;
  std::map<int, bool> seen_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, int, std::less<>> contributed_;  ///< ranks by phase
  std::optional<Error> failure_;
};

}  // namespace kolo
