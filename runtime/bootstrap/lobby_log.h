// LobbyLog: the records of an elastic job without a launcher, in one order for all its processes.
// In a file (FileLobbyLog) or in the user's store (KeyLobbyLog). See StoreLobby. Used by the thread
// that calls init.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/bootstrap/shared_file.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/store_wire.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

class LobbyLog {
 public:
  virtual ~LobbyLog() = default;
  /// Record `number`, counted from 0, all before it having been read. Waits for it for `wait`;
  /// nothing if it is not there then.
  virtual Result<std::optional<Fields>> read(std::size_t number,
                                             std::chrono::milliseconds wait) = 0;
  /// Writes record `number`, all before it having been read. False if another process has written
  /// it. kShutdown if the log has been removed.
  virtual Result<bool> write(std::size_t number, const Fields& record) = 0;
  /// A store in which the processes of a world meet, one that no other world has had.
  virtual Result<std::unique_ptr<Store>> meeting(const std::string& world, const Member& me,
                                                 const std::string& secret, Deadline deadline) = 0;
  /// Whether a process may write while it ends. A user's store may be gone then.
  virtual bool is_there_at_exit() const = 0;
  /// Nobody needs the log any more.
  virtual void remove() {}
  /// "/shared/job.members", "InitOptions::store": for people.
  virtual std::string where() const = 0;
};

class FileLobbyLog final : public LobbyLog {
 public:
  /// `path`: of the file in which the ranks meet; the log is beside it.
  static std::string path_beside(const std::string& path) { return path + ".members"; }
  static bool is_beside(const std::string& path);
  /// Creates the file if need be. Errors: SharedFile::open().
  static Result<std::unique_ptr<LobbyLog>> open(std::string path);

  Result<std::optional<Fields>> read(std::size_t number, std::chrono::milliseconds wait) override;
  Result<bool> write(std::size_t number, const Fields& record) override;
  Result<std::unique_ptr<Store>> meeting(const std::string& world, const Member& me,
                                         const std::string& secret, Deadline deadline) override;
  bool is_there_at_exit() const override { return true; }
  void remove() override;
  std::string where() const override { return file_.path(); }

 private:
  explicit FileLobbyLog(std::string path) : path_(std::move(path)), file_(path_beside(path_)) {}
  Status read_new();

  const std::string path_;
  SharedFile file_;
  std::vector<Fields> records_;
};

class KeyLobbyLog final : public LobbyLog {
 public:
  explicit KeyLobbyLog(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  /// The first process of that rank over this store: `me`, if there was none. The error of
  /// set_once(), if the store has none.
  Result<std::string> first(int rank, const std::string& me);

  Result<std::optional<Fields>> read(std::size_t number, std::chrono::milliseconds wait) override;
  Result<bool> write(std::size_t number, const Fields& record) override;
  Result<std::unique_ptr<Store>> meeting(const std::string& world, const Member& me,
                                         const std::string& secret, Deadline deadline) override;
  bool is_there_at_exit() const override { return false; }
  std::string where() const override { return "InitOptions::store"; }

 private:
  Result<std::string> set_once(std::string_view key, const std::string& value);

  const std::shared_ptr<Store> store_;
  /// How long an answer of the store takes: a shorter wait would find nothing.
  std::chrono::milliseconds answers_within_{1};
};

}  // namespace kolo
