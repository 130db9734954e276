// A root of in-order broadcasts runs ahead of late ranks: it fills their memory with messages up to
// a bound, then waits. Ranks are threads.
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::broadcast_ahead_test {
namespace {

struct World {
  int size;
  std::vector<int> hosts;
  const char* windows;  ///< KOLO_SHARED_MEMORY
};

class BroadcastAhead : public testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Worlds, BroadcastAhead,
                         testing::Values(World{2, {}, "0"}, World{5, {}, "0"},
                                         World{4, {0, 0, 1, 1}, "1M"}));

/// Sends complete at once, as eager messages over a network do, whether or not somebody receives
/// them.
class EagerTransport final : public FaultyTransport, TransferListener {
 public:
  explicit EagerTransport(std::unique_ptr<Transport> inner)
      : FaultyTransport(std::move(inner), [](const FaultyCall&) { return Fault::kNone; }) {}

  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override {
    while (!sent_.empty() && sent_.front().transfer.state() != Transfer::State::kPending)
      sent_.pop_front();
    TransferListener& listener = *this;
    Message& message = sent_.emplace_back(data, listener);
    FaultyTransport::send(peer, tag, message.bytes, message.transfer);
    transfer.start();
    transfer.finish({});
  }
  void on_transfer_done(Transfer&) override {}

 private:
  struct Message {
    Message(std::span<const std::byte> data, TransferListener& listener)
        : bytes(data.begin(), data.end()), transfer(listener, 0) {}
    std::vector<std::byte> bytes;
    Transfer transfer;
  };
  std::list<Message> sent_;
};

/// The value after it has not changed for a while.
int settled(const std::atomic<int>& value) {
  using Clock = std::chrono::steady_clock;
  int seen = value.load();
  for (auto since = Clock::now(); Clock::now() - since < std::chrono::milliseconds(200);) {
    std::this_thread::yield();
    if (const int now = value.load(); now != seen) {
      seen = now;
      since = Clock::now();
    }
  }
  return seen;
}

TEST_P(BroadcastAhead, WaitsForRanksThatComeLate) {
  constexpr std::size_t kElements = 1 << 20;  // 4 MiB: from host to host in window-sized pieces
  constexpr int kCalls = 40, kMostAhead = 4, kRoot = 1;
  const int late = GetParam().size == 2 ? 0 : GetParam().size - 1;
  std::atomic<int> done_by_root = 0;
  LocalWorldOptions options;
  options.hosts = GetParam().hosts;
  options.variables = {{"KOLO_SHARED_MEMORY", GetParam().windows}};
  options.decorate = [](int, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<EagerTransport>(std::move(inner));
  };
  run_local_world(
      GetParam().size,
      [&](int rank, Runtime& runtime) {
        if (rank == late) {
          EXPECT_LE(settled(done_by_root), kMostAhead);
        }
        std::vector<float> values(kElements);
        for (int call = 0; call < kCalls; ++call) {
          std::fill(values.begin(), values.end(), rank == kRoot ? static_cast<float>(call) : -1.0F);
          const Status status =
              runtime.call_ordered({.kind = OperationKind::kBroadcast,
                                    .input = reinterpret_cast<std::byte*>(values.data()),
                                    .output = reinterpret_cast<std::byte*>(values.data()),
                                    .count = kElements,
                                    .type = DataType::kFloat32,
                                    .root = kRoot});
          ASSERT_TRUE(status.ok()) << status.error().message;
          if (rank == kRoot) ++done_by_root;
          for (const std::size_t i : {std::size_t{0}, kElements / 2, kElements - 1})
            ASSERT_EQ(values[i], static_cast<float>(call)) << "element " << i;
        }
      },
      options);
}

}  // namespace
}  // namespace kolo::test::broadcast_ahead_test
