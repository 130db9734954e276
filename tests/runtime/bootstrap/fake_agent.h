// FakeAgent: the part of PyTorch's TCPStore server that kolo uses of torchrun's agent, written from
// recorded answers of the real one. One thread per connection.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kolo::test {

class FakeAgent {
 public:
  /// `answer`: sent to each client before the server hangs up, instead of acting as a store.
  explicit FakeAgent(std::string answer = {});
  ~FakeAgent();

  const Endpoint& endpoint() const { return endpoint_; }
  void set(const std::string& key, const std::string& value);
  /// The key's value after somebody has been told the current one.
  void set_next(const std::string& key, const std::string& value);
  std::string get(const std::string& key);

 private:
  void accept_all();
  void serve(int fd);

  const std::string answer_;
  Listener listener_;
  Endpoint endpoint_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::map<std::string, std::string> values_;  ///< by key, without the keys' "/" prefix
  std::map<std::string, std::string> next_;    ///< values after the next answer
  std::vector<UniqueDescriptor> connections_;
  std::vector<std::thread> threads_;  ///< the first one accepts connections
};

}  // namespace kolo::test
