// FakeAgent: as much of PyTorch's TCPStore server as kolo asks of torchrun's agent, written from
// what the real one was seen to answer. A thread a connection.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kolo::testing {

class FakeAgent {
 public:
  /// `answer`: what it says to each who connects, before it hangs up, instead of being a store.
  explicit FakeAgent(std::string answer = {});
  ~FakeAgent();

  const Endpoint& endpoint() const { return endpoint_; }
  void set(const std::string& key, const std::string& value);
  /// What the key has once somebody has been told what it has now.
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
  std::map<std::string, std::string> values_;  ///< without the "/" before their keys
  std::map<std::string, std::string> next_;    ///< the same after the next answer
  std::vector<UniqueDescriptor> connections_;
  std::vector<std::thread> threads_;  ///< the first one accepts
};

}  // namespace kolo::testing
