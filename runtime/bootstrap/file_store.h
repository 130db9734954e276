// FileStore: the store in a file that all ranks reach, as on a shared file system. Records are
// appended under a lock, and each rank replays them. A file tells nobody that it has grown, so that
// waits look at it again and again. Used by the thread that calls init.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/store_table.h"
#include "runtime/topology/world.h"

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace kolo {

class FileStore final : public Store {
 public:
  /// Creates the file, for this user alone, or joins those whose file it is. kInvalidArgument, with
  /// the file's age, for one that another job has left: it has another secret, a rank in it has
  /// ended, or it is older than all that this job may wait; and for one that is another user's or
  /// that anybody may write to. kTimeout if somebody keeps it locked until the deadline. While
  /// others are still in a meeting that this process has left, it waits for them to leave, too.
  /// kUnsupported on a file system without locks; kMismatch if the ranks disagree on their number.
  static Result<std::unique_ptr<FileStore>> join(std::string path, const Member& me,
                                                 const std::string& secret, Deadline deadline);
  /// Without leave() the others hear that this rank has failed, and the file goes at once.
  ~FileStore() override;

  Status set(std::string_view key, std::string value) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  Error give_up(Error why) override;
  /// The last one removes the file.
  void leave() override;

 private:
  class Lock;
  struct Life {
    std::string pid_namespace;  ///< where `pid` means something
    pid_t pid = 0;
  };

  FileStore(std::string path, int rank, std::chrono::seconds patience)
      : path_(std::move(path)), rank_(rank), patience_(patience), table_(0) {}
  Status open();
  /// False: this process has been in this meeting.
  Result<bool> enter(const Member& me, const std::string& secret);
  bool is_at_path() const;
  /// Since somebody last wrote to the file, by the clock of its file system.
  std::chrono::seconds age() const;
  Status append(const Fields& fields);
  Status read_new();
  Status replay(Fields record);
  int note_end(std::string_view rank_text);
  void notice_the_dead();
  Error not_ours(std::string_view why) const;
  /// `record`: kLeft, what follows the rank.
  void end(Fields record, bool met);

  const std::string path_;
  const int rank_;
  const std::chrono::seconds patience_;  ///< of a rank that waits, until it gives up
  const RankInfo here_ = describe_this_process({});
  UniqueDescriptor fd_;
  off_t read_ = 0;                    ///< bytes that have been read
  std::string rest_ = {};             ///< of them, those of records that are not whole
  std::string job_ = {};              ///< of the first record
  StoreTable table_;                  ///< what the records say
  std::map<int, Life> lives_ = {};    ///< of ranks that are here
  std::map<int, Life> left_by_ = {};  ///< of ranks that have been here
  int size_ = 0;
  int left_ = 0;
  bool is_in_ = false;
};

}  // namespace kolo
