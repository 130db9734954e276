// A rank that fails in init when the init of another one has ended.
#include "runtime/base/check.h"
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/local_world.h"
#include "transport/loopback/loopback_hub.h"
#include "transport/loopback/loopback_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <utility>

namespace kolo::test::init_failure_test {
namespace {

/// The last exchange of init succeeds on rank 1 alone.
class LateFailure final : public Bootstrap {
 public:
  LateFailure(Store& store, int rank, std::latch& is_up)
      : exchange_(store, rank, 2), is_up_(is_up) {}
  std::string description() const override { return "late failure"; }
  int rank() const override { return exchange_.rank(); }
  int size() const override { return 2; }
  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    auto all = exchange_.exchange(phase, std::move(blob), deadline);
    if (phase != "clocks" || rank() == 1) return all;
    is_up_.wait();
    return KOLO_ERROR(kTransport, "the store has closed the connection");
  }
  Error give_up(Error) override { return KOLO_ERROR(kPeerLost, "rank 7 has ended"); }

 private:
  StoreBootstrap exchange_;
  std::latch& is_up_;
};

TEST(InitFailure, ARankWhoseInitHasEndedHearsWhyAnotherFailsInIt) {
  MemoryStore store;
  LoopbackHub hub(2);
  std::latch is_up(1);
  const auto start = [&](int rank) {
    auto config =
        Config::from_environment(Environment({{"KOLO_HOST_ID", "host" + std::to_string(rank)}}));
    Log log(config->log_level);
    LateFailure bootstrap(store, rank, is_up);
    return Runtime::start(bootstrap, {.config = *std::move(config),
                                      .log = std::move(log),
                                      .transport = std::make_unique<LoopbackTransport>(hub, rank)});
  };
  std::thread zero([&] {
    const auto runtime = start(0);
    ASSERT_FALSE(runtime.ok());
    EXPECT_EQ(runtime.error().message, "rank 7 has ended");
  });
  const auto one = start(1);
  is_up.count_down();
  std::vector<float> values(1);
  std::string message;
  if (one.ok()) {
    const auto work = (*one)->submit(allreduce_of("t", values));
    message = work.ok() ? (*work)->wait().error().message : work.error().message;
  }
  zero.join();
  EXPECT_THAT(message, testing::HasSubstr("rank 7 has ended"));
}

}  // namespace
}  // namespace kolo::test::init_failure_test
