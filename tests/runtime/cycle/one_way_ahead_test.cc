// In-order calls whose data goes one way: a rank that sends runs ahead of late ranks. It fills
// their memory with messages up to a bound, then waits. Ranks are threads.
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::one_way_ahead_test {
namespace {

struct World {
  int size;
  std::vector<int> hosts;
  const char* windows;  ///< KOLO_SHARED_MEMORY
  OperationKind kind = OperationKind::kBroadcast;
};

class OneWayAhead : public testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Worlds, OneWayAhead,
                         testing::Values(World{2, {}, "0"}, World{5, {}, "0"},
                                         World{4, {0, 0, 1, 1}, "1M"},
                                         World{2, {}, "0", OperationKind::kGather},
                                         World{4, {0, 0, 1, 1}, "1M", OperationKind::kGather},
                                         World{2, {}, "0", OperationKind::kScatter},
                                         World{5, {}, "0", OperationKind::kScatter}));

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

TEST_P(OneWayAhead, WaitsForRanksThatComeLate) {
  constexpr std::size_t kElements = 1 << 20;  // 4 MiB: from host to host in window-sized pieces
  constexpr int kCalls = kSanitized ? 12 : 40, kMostAhead = 4, kSender = 1;
  const auto [size, hosts, windows, kind] = GetParam();
  const int late = size == 2 ? 0 : size - 1;
  const int root = kind == OperationKind::kGather ? late : kSender;
  std::atomic<int> done_by_sender = 0;
  LocalWorldOptions options;
  options.hosts = hosts;
  options.variables = {{"KOLO_SHARED_MEMORY", windows}};
  options.decorate = [](int, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<EagerTransport>(std::move(inner));
  };
  run_local_world(
      size,
      [&, kind = kind](int rank, Runtime& runtime) {
        if (rank == late) {
          EXPECT_LE(settled(done_by_sender), kMostAhead);
        }
        const auto parts = static_cast<std::size_t>(runtime.world().size());
        std::vector<float> input(kElements * (kind == OperationKind::kScatter ? parts : 1));
        std::vector<float> output(kElements * (kind == OperationKind::kGather ? parts : 1));
        for (int call = 0; call < kCalls; ++call) {
          std::fill(input.begin(), input.end(), static_cast<float>(100 * rank + call));
          std::fill(output.begin(), output.end(), -1.0F);
          const bool is_broadcast = kind == OperationKind::kBroadcast;
          auto& from = is_broadcast && rank != root ? output : input;
          auto& to = is_broadcast ? from : output;
          const Status status =
              runtime.call_ordered({.kind = kind,
                                    .input = reinterpret_cast<std::byte*>(from.data()),
                                    .output = reinterpret_cast<std::byte*>(to.data()),
                                    .count = kElements,
                                    .type = DataType::kFloat32,
                                    .root = root});
          ASSERT_TRUE(status.ok()) << status.error().message;
          if (rank == kSender) ++done_by_sender;
          if (kind == OperationKind::kGather && rank != root) continue;
          for (std::size_t i = 0; i < to.size(); i += kElements / 2 - 1) {
            const bool gathers = kind == OperationKind::kGather;
            const std::size_t sender = gathers ? i / kElements : static_cast<std::size_t>(root);
            ASSERT_EQ(to[i], static_cast<float>(100 * static_cast<int>(sender) + call))
                << "element " << i;
          }
        }
      },
      options);
}

}  // namespace
}  // namespace kolo::test::one_way_ahead_test
