// TensorTable: negotiated submission. Any thread passes operations to the cycle through this table
// (Horovod's tensor queue). It owns the names in flight; a mutex guards everything.
#pragma once

#include "runtime/base/waker.h"
#include "runtime/submission/entry.h"

#include <kolo/error.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kolo {

class TensorTable {
 public:
  /// The waker is called when the cycle has a reason to look: the first entry of a batch, entries
  /// with a weight_of() of `batch_size` in all, or a flush.
  TensorTable(Waker& waker, std::uint64_t batch_size);

  /// Any thread: takes all entries or none. There is at least one, and either all have names or
  /// none has. kInvalidArgument if a name is in flight; after close() its error. An unnamed entry
  /// gets a name by its order among the calls of its signature, or of its kind (by_order); a group,
  /// among the groups with its signatures. If the name is still in flight, the entry waits here
  /// until the name is released. A join waits for such entries, because a joined rank announces
  /// nothing. `will_wait`: the caller waits for the entries at once, so request_flush() wakes the
  /// cycle. Entries without a time of submission get that of the first one that drain() has not
  /// taken yet: to read a clock takes a tenth of a small tensor's submission.
  Status submit(std::span<EntryPtr> entries, bool will_wait);

  /// Any thread: a caller waits, so all entries here must be announced without delay. `wake`: also
  /// call the waker; a caller that drives the cycle itself does not need this.
  void request_flush(bool wake);

  /// Token holder: appends the entries in order of submission. Returns whether a flush was
  /// requested since the last call.
  bool drain(std::vector<EntryPtr>& entries);

  /// Token holder: the operation of this name has ended, and the name may be used again.
  void release(const std::string& name);
  /// Releases the names of all entries that this rank has submitted itself.
  void release(std::span<const EntryPtr> entries);

  /// Refuses further entries with `error`. Only the first call counts.
  void close(const Error& error);

  /// Token holder: counts unnamed calls from 0 again. For a join: ranks may have made different
  /// numbers of calls.
  void restart_unnamed();

  /// Any thread: an unnamed call failed on this rank before it could be announced. The numbers of
  /// later ones of its kind no longer tell which of the others' calls they meet. They only meet
  /// calls of ranks on which as many have failed, until restart_unnamed().
  void count_failed_unnamed(OperationKind kind);

  /// Names that are submitted and not yet released, but for those of which nobody has the Work.
  std::size_t in_flight() const;

 private:
  /// Takes all names or none.
  Status take_names(std::span<const EntryPtr> entries);
  void give_names(std::span<EntryPtr> entries);
  bool take_name(const std::string& name);
  void give_back_name(const std::string& name);
  bool enqueue(EntryPtr entry);
  void release_locked(const std::string& name);

  Waker& waker_;
  const std::uint64_t batch_size_;
  mutable std::mutex mutex_;
  std::atomic<bool> has_news_ = false;  ///< for drain(), in most passes without the lock
  std::vector<EntryPtr> entries_;
  std::chrono::steady_clock::time_point first_came_at_;  ///< when the first of entries_ came
  std::uint64_t queued_bytes_ = 0;
  bool flush_ = false;
  std::unordered_map<std::string, bool> names_;  ///< whether each is in flight
  std::size_t taken_ = 0;                        ///< number of names in flight
  std::unordered_set<std::string> dropped_;      ///< names in flight of which nobody has the Work
  std::unordered_map<std::string, std::uint64_t> unnamed_;  ///< number of calls by base name
  std::unordered_map<OperationKind, std::uint64_t> failed_unnamed_;
  std::unordered_map<std::string, std::deque<EntryPtr>> wait_for_name_;  ///< unnamed calls by name
  EntryPtr held_join_;  ///< waits until wait_for_name_ is empty
  std::optional<Error> closed_;
};

}  // namespace kolo
