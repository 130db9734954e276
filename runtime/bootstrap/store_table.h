// StoreTable: the state of the TCP store's server: values, ranks that are here, and the failure
// that ended the meeting, if any. No sockets, no clock. Used by the server's thread.
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
  /// `size`: number of ranks, as `size_by` says; 0: as the first rank says.
  explicit StoreTable(int size, std::string size_by = {})
      : size_(size), size_by_(std::move(size_by)) {}

  /// kMismatch if the ranks disagree on their number, kInvalidArgument for a second process with
  /// the same rank. Both fail the meeting for all, because nobody knows which processes belong
  /// together. A process of another job gets kInvalidArgument alone.
  Status join(const Member& member);
  /// Whether `member` may belong to the job that meets here; else kInvalidArgument.
  Status check_job(const Member& member) const;
  /// A rank that leaves without `orderly` fails the meeting for all.
  void leave(int rank, bool orderly);

  /// The rank leaves because it lost another rank or a link. This fails the meeting for all.
  void give_up(int rank, Error why);
  /// The rank's process has ended and will not join. This fails the meeting for all.
  void note_gone(int rank);

  /// kInvalidArgument if the key exists.
  Status set(std::string_view key, std::string value);
  /// Null if the key does not exist.
  const std::string* find(std::string_view key) const;

  /// Sets "phase/rank", with the errors of set(). A rank may give the same value again.
  Status contribute(std::string_view phase, int rank, std::string value);
  bool is_complete(std::string_view phase) const;
  Gathered contributions(std::string_view phase) const;

  const std::optional<Error>& failure() const { return failure_; }
  int size() const { return size_; }
  bool has(int rank) const { return members_.count(rank) > 0; }
  bool is_empty() const { return members_.empty(); }
  /// Whether a rank has left in an orderly way: then all ranks have met.
  bool has_anyone_met() const { return has_anyone_met_; }

 private:
  void fail(Error error);

  int size_;
  std::string size_by_;  ///< who told the size
  Member of_job_ = {};   ///< the first member that knew its job
  std::map<int, Member> members_;
  bool has_anyone_met_ = false;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, int, std::less<>> contributed_;  ///< number of ranks, by phase
  std::optional<Error> failure_;
};

}  // namespace kolo
