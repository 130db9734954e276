// SharedFile: a file of records that several ranks append to, for example on a shared file system.
// A rank locks it while it reads or writes, and replays the records that others have written.
// Nothing signals that the file has grown, so those that wait poll it. Used by the thread that
// calls init.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/store_wire.h"

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace kolo {

class SharedFile {
 public:
  /// Held while a rank reads or changes the file. The lock is polled: flock() itself would wait
  /// without a deadline if a process was stopped while it holds the lock.
  class Lock {
   public:
    Lock(const SharedFile& file, Deadline deadline);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    /// kTimeout if the file stayed locked; kUnsupported if its file system has no locks.
    Status status() const;

   private:
    const SharedFile& file_;
    int error_ = 0;
  };

  explicit SharedFile(std::string path) : path_(std::move(path)) {}

  /// Creates the file for this user alone, or opens it. kInvalidArgument if it is another user's or
  /// anybody may write to it.
  Status open();
  const std::string& path() const { return path_; }
  /// The file is still the one at the path.
  bool is_at_path() const;
  bool is_empty() const;
  /// Time since the last write to the file, by the clock of its file system.
  std::chrono::seconds age() const;
  void remove() const;

  Status append(const Fields& fields) const;
  /// The next record that this rank has not taken yet; nothing at the end. kMismatch if the file
  /// does not consist of records.
  Result<std::optional<Fields>> take();

 private:
  const std::string path_;
  UniqueDescriptor fd_;
  off_t read_ = 0;         ///< bytes that have been read
  std::string rest_ = {};  ///< bytes that have been read and not been taken
};

}  // namespace kolo
