// PmiServer: the PMI 1 server of Hydra, for ranks that are threads. Values are visible only after
// the barrier, names at once. It answers from a thread of its own; a test may replace its answers.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/base/unique_handle.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace kolo {

class PmiServer {
 public:
  /// One or more lines in place of the server's own answer to a rank's line; nothing: its own
  /// answer.
  using Interference =
      std::function<std::optional<std::string>(int rank, const std::string& command)>;

  explicit PmiServer(int size, Interference interference = {});
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  /// The environment that the launcher would give the rank.
  Environment environment(int rank) const;
  /// Closes the connections to all ranks, as when the launcher ends.
  void end();
  /// Number of times that a rank has sent this command.
  int count(int rank, const std::string& command) const;

 private:
  struct Connection {
    UniqueDescriptor ours;
    UniqueDescriptor theirs;
    std::string received;
  };
  void serve();
  void answer(std::size_t rank, const std::string& line);
  std::string answer_of(const std::string& line);

  const int size_;
  const Interference interference_;
  UniqueDescriptor stop_;
  std::vector<Connection> connections_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> unseen_;
  std::set<std::string> names_;
  int in_barrier_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<int, std::string>, int> counts_;
  std::thread thread_;
};

}  // namespace kolo
