// TensorTable: the door through which any thread hands operations to the cycle (Horovod's tensor
// queue). It owns the names in flight; a mutex guards everything.
#pragma once

#include "runtime/base/waker.h"
#include "runtime/submission/entry.h"

#include <kolo/error.h>

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
  /// The waker is rung when the cycle has a reason to look: the first entry of a batch,
  /// entries of `batch_size`, as weight_of() has it, a flush.
  TensorTable(Waker& waker, std::uint64_t batch_size);

  /// Any thread: takes all entries or none; there is one, and all have names or none has.
  /// kInvalidArgument if a name is in flight; after close() that error. Entries without get one by
  /// their order among the calls of their signature, or, being one group, of their signatures;
  /// where it is in flight still, they wait here until it is released, and a join waits for them:
  /// ranks that have joined announce nothing. `will_wait`: the caller waits for them at once, and
  /// request_flush() does the waking.
  Status submit(std::span<EntryPtr> entries, bool will_wait);

  /// Any thread: somebody waits; what is here shall be announced without delay. `wake`: ring the
  /// waker too; a caller that drives the cycle itself need not.
  void request_flush(bool wake);

  /// Token holder: appends the entries to `entries`, in order of submission; true if a flush was
  /// asked for since the last call.
  bool drain(std::vector<EntryPtr>& entries);

  /// Token holder: the operation of this name has ended; the name may be used again.
  void release(const std::string& name);
  /// The same of all of them that are this rank's own.
  void release(std::span<const EntryPtr> entries);

  /// Refuses further entries with `error`. The first call counts.
  void close(const Error& error);

  /// Token holder: unnamed calls are counted from 0 again, for ranks that have not made as many as
  /// others (a join).
  void restart_unnamed();

  /// Names that are submitted and not released.
  std::size_t in_flight() const;

 private:
  using Names = std::unordered_set<std::string>;

  /// All or none.
  Status take_names(std::span<const EntryPtr> entries);
  void give_names(std::span<EntryPtr> entries);
  bool take_name(const std::string& name);
  void give_back_name(const std::string& name);
  bool enqueue(EntryPtr entry);
  void release_locked(const std::string& name);

  Waker& waker_;
  const std::uint64_t batch_size_;
  mutable std::mutex mutex_;
  std::vector<EntryPtr> entries_;
  std::uint64_t queued_bytes_ = 0;
  bool flush_ = false;
  Names names_;
  std::vector<Names::node_type> spare_names_;               ///< their memory, to be used again
  std::unordered_map<std::string, std::uint64_t> unnamed_;  ///< calls by base name
  std::unordered_map<std::string, std::deque<EntryPtr>> wait_for_name_;  ///< unnamed calls
  EntryPtr held_join_;  ///< until none of them waits
  std::optional<Error> closed_;
};

}  // namespace kolo
