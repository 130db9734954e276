// FileStore: the store in a file that all ranks reach, for example on a shared file system. Ranks
// append records under a lock, and each rank replays them. Nothing signals that a file has grown,
// so waits poll the file. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/shared_file.h"
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
  /// Creates the file for this user alone, or joins the meeting in it. If this process has left a
  /// meeting and others are still in it, waits for them to leave. kInvalidArgument, with the file's
  /// age, for a file of another job: it has another secret, one of its ranks has ended, or it is
  /// older than this job may wait. kInvalidArgument also if the file is another user's or anybody
  /// may write to it. kTimeout if it stays locked until the deadline; kUnsupported if the file
  /// system has no locks; kMismatch if the ranks disagree on their number.
  static Result<std::unique_ptr<FileStore>> join(std::string path, const Member& me,
                                                 const std::string& secret, Deadline deadline);
  /// Without leave() the others learn that this rank has failed, and the file is removed at once.
  ~FileStore() override;

  Status set(std::string_view key, std::string value) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  Error give_up(Error why) override;
  /// The last rank removes the file.
  void leave() override;

 private:
  struct Life {
    std::string pid_namespace;  ///< where `pid` is valid
    pid_t pid = 0;

    friend bool operator==(const Life&, const Life&) = default;
  };

  FileStore(std::string path, int rank, std::chrono::seconds patience)
      : file_(std::move(path)), rank_(rank), patience_(patience), table_(0) {}
  /// Ok if the file is that of a live meeting with this secret; reads its records.
  Status check_meeting(const std::string& secret, bool is_new);
  /// False if this process has been in this meeting before.
  Result<bool> enter(const Member& me, const std::string& secret);
  Status read_new();
  Status replay(Fields record);
  int note_end(std::string_view rank_text);
  void find_dead_processes();
  Error not_ours(std::string_view why) const;
  /// Appends `record` (kLeft or kGaveUp) as this rank's last one.
  void end(Fields record, bool met);

  SharedFile file_;
  const int rank_;
  const std::chrono::seconds patience_;  ///< how long a rank waits before it gives up
  const RankInfo here_ = describe_this_process({});
  std::string job_ = {};              ///< from the first record
  StoreTable table_;                  ///< state after all records so far
  std::map<int, Life> lives_ = {};    ///< ranks that are here
  std::map<int, Life> left_by_ = {};  ///< ranks that have left
  int size_ = 0;
  int left_ = 0;
  bool is_in_ = false;
};

}  // namespace kolo
