// InitOptions besides the rendezvous method: refused values, and a rendezvous over the user's own
// store.
#include "bindings/core/init_options.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace kolo::init_options_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class MapStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      throw std::runtime_error("nobody has set " + key);
    }
    return values_[key];
  }
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

ErrorCode code_of(const InitOptions& options, const std::string& words) {
  const Status status = check_options(options);
  if (status.ok()) return ErrorCode::kInternal;
  EXPECT_THAT(status.error().message, HasSubstr(words));
  return status.error().code;
}

TEST(InitOptions, BackendsAndDevicesThatThereAreNot) {
  EXPECT_TRUE(check_options({}).ok());
  EXPECT_EQ(code_of({.backend = "gloo"}, "'gloo' is unknown: expected one of kolo, nccl"),
            ErrorCode::kInvalidArgument);
  if (!nccl_built()) {
    EXPECT_EQ(code_of({.backend = "nccl"}, "without NCCL"), ErrorCode::kUnsupported);
  }
  if (!cuda_built()) {
    EXPECT_EQ(code_of({.device = 3}, "device is 3"), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(code_of({.timeout = std::chrono::seconds(0)}, "at least 1"),
            ErrorCode::kInvalidArgument);
}

TEST(InitOptions, WhatRanksMustAgreeOn) {
  RendezvousMethod way;
  way.method = "tcp";
  EXPECT_THAT(agreed_options({.group_name = "a"}, way, /*splits=*/2),
              ElementsAre("init method: tcp", "backend: kolo", "group name: a",
                          "calls of split_world(): 2"));
  way.meeting = Meeting::kStore;
  way.size = 3;
  EXPECT_THAT(agreed_options({}, way, /*splits=*/0), Contains("number of ranks: 3"));
}

Result<std::vector<std::string>> exchange(const std::shared_ptr<KeyValueStore>& store,
                                          const std::string& group, int rank, Deadline deadline) {
  RendezvousMethod way;
  way.meeting = Meeting::kStore;
  way.rank = rank;
  way.size = 2;
  KOLO_ASSIGN(auto bootstrap, meet(way, {.store = adapt_store(store, group)},
                                   Environment(Environment::Variables{}), deadline));
  return bootstrap->exchange("hello", group + std::to_string(rank), deadline);
}

TEST(UserStore, GroupsThatShareOneMeetEachForItself) {
  const auto store = std::make_shared<MapStore>();
  const auto soon = Deadline::after(std::chrono::seconds(30));
  std::vector<std::thread> others;
  for (const std::string group : {"a", "b"}) {
    others.emplace_back([=] { EXPECT_TRUE(exchange(store, group, 1, soon).ok()); });
  }
  for (const std::string group : {"a", "b"}) {
    const auto all = exchange(store, group, 0, soon);
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_THAT(*all, ElementsAre(group + "0", group + "1"));
  }
  for (std::thread& other : others) other.join();
  for (const auto& [key, value] : store->values()) EXPECT_TRUE(key.starts_with("kolo/")) << key;
}

TEST(UserStore, ARankThatDoesNotComeIsNamed) {
  const auto all =
      exchange(std::make_shared<MapStore>(), "", 0, Deadline::after(std::chrono::milliseconds(50)));
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(all.error().message, HasSubstr("1 of 2 ranks did not reach phase 'hello'"));
}

class BrokenStore final : public KeyValueStore {
  void set(const std::string&, const std::string&) override { throw std::runtime_error("full"); }
  std::string get(const std::string&, std::chrono::milliseconds) override { return {}; }
};

TEST(UserStore, ItsExceptionsBecomeErrors) {
  const auto all =
      exchange(std::make_shared<BrokenStore>(), "", 0, Deadline::after(std::chrono::seconds(30)));
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, ErrorCode::kTransport);
  EXPECT_THAT(all.error().message, HasSubstr("failed: full"));
}

}  // namespace
}  // namespace kolo::init_options_test
