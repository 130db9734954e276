#include "tests/runtime/bootstrap/fake_agent.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo::test {
namespace {

Deadline later() { return Deadline::after(std::chrono::seconds(60)); }

template <class Number>
Result<Number> receive_number(int fd) {
  auto bytes = receive_exactly(fd, sizeof(Number), later());
  if (!bytes.ok()) return Error(bytes.error());
  Number number = 0;
  std::memcpy(&number, bytes->data(), sizeof number);
  return number;
}

std::string receive_text(int fd) {
  const auto length = receive_number<std::uint64_t>(fd);
  auto text = length.ok() ? receive_exactly(fd, *length, later()) : std::string();
  return text.ok() ? *text : "";
}

std::string receive_key(int fd) { return receive_text(fd).substr(1); }

}  // namespace

FakeAgent::FakeAgent(std::string answer) : answer_(std::move(answer)) {
  auto listener = listen_at({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok());
  listener_ = *std::move(listener);
  endpoint_ = {"127.0.0.1", listener_.port};
  threads_.emplace_back([this] { accept_all(); });
}

FakeAgent::~FakeAgent() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    for (const auto& fd : connections_) ::shutdown(fd.get(), SHUT_RDWR);
  }
  changed_.notify_all();
  // A connection of its own wakes the thread that listens.
  [[maybe_unused]] const auto knock = connect_to(endpoint_, later());
  threads_.front().join();
  for (std::size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
}

void FakeAgent::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

void FakeAgent::set_next(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  next_[key] = value;
}

std::string FakeAgent::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_[key];
}

void FakeAgent::accept_all() {
  for (;;) {
    pollfd entry = {listener_.fd.get(), POLLIN, 0};
    if (::poll(&entry, 1, -1) != 1) continue;
    UniqueDescriptor fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK));
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    if (!answer_.empty()) {
      [[maybe_unused]] const Status sent = send_all(fd.get(), answer_, later());
      ::shutdown(fd.get(), SHUT_WR);
    } else {
      threads_.emplace_back([this, raw = fd.get()] { serve(raw); });
    }
    connections_.push_back(std::move(fd));
  }
}

void FakeAgent::serve(int fd) {
  const auto send = [fd](const std::string& bytes) { return send_all(fd, bytes, later()).ok(); };
  for (;;) {
    const auto kind = receive_exactly(fd, 1, later());
    if (!kind.ok()) return;
    switch ((*kind)[0]) {
      case 0: {
        const auto magic = receive_number<std::uint32_t>(fd);
        EXPECT_TRUE(magic.ok() && *magic == 0x3C85F7CE);
        break;
      }
      case 1: {
        const std::string key = receive_key(fd);
        set(key, receive_text(fd));
        break;
      }
      case 3: {
        const std::string key = receive_key(fd);
        const std::string value = get(key);
        const std::lock_guard lock(mutex_);
        if (const auto next = next_.extract(key)) values_[key] = next.mapped();
        const std::uint64_t length = value.size();
        send(std::string(reinterpret_cast<const char*>(&length), sizeof length) + value);
        break;
      }
      case 6: {
        EXPECT_EQ(*receive_number<std::uint64_t>(fd), 1U);
        const std::string key = receive_key(fd);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || values_.count(key) > 0; });
        send(std::string(1, '\0'));
        break;
      }
      case 13: {
        const auto nonce = receive_exactly(fd, 4, later());
        if (nonce.ok()) send(*nonce);
        break;
      }
      default:
        ADD_FAILURE() << "a request " << static_cast<int>((*kind)[0]);
        return;
    }
  }
}

}  // namespace kolo::test
