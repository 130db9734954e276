#include "tests/support/pmi_server.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/pmi_wire.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace kolo {
namespace {

constexpr const char* kTable = "kvs_1_0";

void say(int fd, const std::string& lines) {
  // A rank that has gone cannot hear; ignore this.
  [[maybe_unused]] const auto sent = ::send(fd, lines.data(), lines.size(), MSG_NOSIGNAL);
}

}  // namespace

PmiServer::PmiServer(int size, Interference interference)
    : size_(size), interference_(std::move(interference)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  connections_.resize(static_cast<std::size_t>(size));
  for (Connection& connection : connections_) {
    std::array<int, 2> ends = {};
    KOLO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    connection.ours.reset(ends[0]);
    connection.theirs.reset(ends[1]);
  }
  thread_ = std::thread([this] { serve(); });
}

PmiServer::~PmiServer() { end(); }

void PmiServer::end() {
  if (!thread_.joinable()) return;
  KOLO_CHECK(::eventfd_write(stop_.get(), 1) == 0);
  thread_.join();
  for (Connection& connection : connections_) connection.ours.reset();
}

Environment PmiServer::environment(int rank) const {
  const int fd = connections_[static_cast<std::size_t>(rank)].theirs.get();
  return Environment({{"PMI_FD", std::to_string(fd)},
                      {"PMI_RANK", std::to_string(rank)},
                      {"PMI_SIZE", std::to_string(size_)}});
}

int PmiServer::count(int rank, const std::string& command) const {
  const std::lock_guard lock(mutex_);
  const auto it = counts_.find({rank, command});
  return it == counts_.end() ? 0 : it->second;
}

void PmiServer::serve() {
  for (;;) {
    std::vector<pollfd> polled{{stop_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      polled.push_back({connection.ours.get(), POLLIN, 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (std::size_t rank = 0; rank < connections_.size(); ++rank) {
      if (polled[rank + 1].revents == 0) continue;
      std::array<char, 4096> bytes;
      const auto got = ::recv(connections_[rank].ours.get(), bytes.data(), bytes.size(), 0);
      if (got <= 0) {
        connections_[rank].ours.reset();
        continue;
      }
      std::string& received = connections_[rank].received;
      received.append(bytes.data(), static_cast<std::size_t>(got));
      for (std::size_t end = 0; (end = received.find('\n')) != std::string::npos;) {
        const std::string line = received.substr(0, end);
        received.erase(0, end + 1);
        answer(rank, line);
      }
    }
  }
}

void PmiServer::answer(std::size_t rank, const std::string& line) {
  const auto question = parse_pmi(line);
  KOLO_CHECK(question.ok());
  {
    const std::lock_guard lock(mutex_);
    ++counts_[{static_cast<int>(rank), question->command}];
  }
  const int fd = connections_[rank].ours.get();
  if (interference_) {
    if (const auto instead = interference_(static_cast<int>(rank), question->command)) {
      return say(fd, *instead);
    }
  }
  if (question->command != "barrier_in") return say(fd, answer_of(line) + "\n");
  if (++in_barrier_ < size_) return;
  in_barrier_ = 0;
  values_.merge(unseen_);
  for (const Connection& connection : connections_) say(connection.ours.get(), "cmd=barrier_out\n");
}

std::string PmiServer::answer_of(const std::string& line) {
  const auto question = parse_pmi(line);
  const std::string& command = question->command;
  const std::string key(question->field("key"));
  const std::string service(question->field("service"));
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=128";
  if (command == "get_my_kvsname") return fmt::format("cmd=my_kvsname kvsname={}", kTable);
  if (command == "put") {
    const bool fits = key.size() < 64 && question->field("value").size() < 128;
    unseen_[key] = question->field("value");
    return fmt::format("cmd=put_result rc={} msg=x", fits ? 0 : -1);
  }
  if (command == "get") {
    const auto it = values_.find(key);
    if (it != values_.end()) return "cmd=get_result rc=0 msg=success value=" + it->second;
    return fmt::format("cmd=get_result rc=-1 msg=key_{}_not_found value=unknown", key);
  }
  if (command == "publish_name") {
    names_.insert(service);
    return "cmd=publish_result info=ok rc=0 msg=success";
  }
  if (command == "lookup_name") {
    if (names_.count(service) == 0) return "cmd=lookup_result rc=1 msg=service_not_found";
    return "cmd=lookup_result port=here info=ok rc=0 msg=success";
  }
  if (command == "unpublish_name") {
    names_.erase(service);
    return "cmd=unpublish_result info=ok rc=0 msg=success";
  }
  return fmt::format("cmd={}_ack", command);
}

}  // namespace kolo
