// As many ranks as in a large job, over one store. Each sends one request per exchange and gets one
// answer, so the number of messages is linear; ranks pass long answers on to each other.
#include "runtime/bootstrap/relay.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kolo {
namespace {

std::unique_ptr<TcpStoreServer> serve(int ranks) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4 * static_cast<rlim_t>(ranks) + 64);
  ::setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_GT(files.rlim_cur, 3U * static_cast<rlim_t>(ranks))
      << "both ends of each connection are in this process, and where a rank listens";
  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  options.size = ranks;
  options.secret = "secret";
  auto server = TcpStoreServer::start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.error().message;
  return *std::move(server);
}

Result<std::unique_ptr<TcpStore>> join(const TcpStoreServer& server, int rank, int ranks,
                                       Deadline deadline) {
  return TcpStore::join({"127.0.0.1", server.port()}, {rank, ranks, fmt::format("rank {}", rank)},
                        "secret", deadline);
}

// The answer is that long that the ranks pass it on.
TEST(ManyRanks, AThousandExchangeBlobsInOneRoundEach) {
  constexpr int kRanks = 1000;
  const auto server = serve(kRanks);
  const auto deadline = Deadline::after(std::chrono::seconds(100));
  const std::string blob(kRelayBytes / kRanks / kRanks, 'x');
  std::atomic<int> good = 0;
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      auto store = join(*server, rank, kRanks, deadline);
      ASSERT_TRUE(store.ok()) << store.error().message;
      StoreBootstrap bootstrap(**store, rank, kRanks);
      for (const char* phase : {"hello", "again"}) {
        const auto all = bootstrap.exchange(phase, blob + std::to_string(rank), deadline);
        ASSERT_TRUE(all.ok()) << all.error().message;
        for (std::size_t r = 0; r < all->size(); ++r) {
          if ((*all)[r] != blob + std::to_string(r)) return;
        }
      }
      (*store)->leave();
      ++good;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(good, kRanks);
  std::printf("%d ranks met and exchanged blobs in %.2f s\n", kRanks, took.count());
}

TEST(ManyRanks, ARankThatPassesNothingOnIsNamed) {
  constexpr int kRanks = kRelayRanks;
  const auto server = serve(kRanks);
  const std::string blob(kRelayBytes / kRanks / kRanks, 'x');
  // The first to come is the first of the tree. It listens, and that is all.
  const auto listener = listen_at({});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  const auto late = Deadline::after(std::chrono::seconds(100));
  auto idle = connect_to({"127.0.0.1", server->port()}, late);
  ASSERT_TRUE(idle.ok()) << idle.error().message;
  const auto greeting = receive_exactly(idle->get(), kStoreHello.size() + kNonceSize, late);
  ASSERT_TRUE(greeting.ok()) << greeting.error().message;
  const Member me = {7, kRanks, "idle"};
  const std::string proof =
      store_proof("secret", "client", greeting->substr(kStoreHello.size()), "mine", me);
  const Fields hello = {"mine", proof, "7", std::to_string(kRanks), me.who, me.job};
  ASSERT_TRUE(send_all(idle->get(), to_frame(hello), late).ok());
  ASSERT_TRUE(receive_body(idle->get(), kHelloLimit, late).ok());
  ASSERT_TRUE(send_all(idle->get(),
                       to_frame({std::string(kExchangeRequest), "hello", blob + "7", "100000",
                                 std::to_string(listener->port)}),
                       late)
                  .ok());

  std::atomic<int> named = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 7) continue;
    ranks.emplace_back([&, rank] {
      auto store = join(*server, rank, kRanks, late);
      ASSERT_TRUE(store.ok()) << store.error().message;
      StoreBootstrap bootstrap(**store, rank, kRanks);
      const auto all = bootstrap.exchange("hello", blob + std::to_string(rank),
                                          Deadline::after(std::chrono::seconds(10)));
      ASSERT_FALSE(all.ok());
      const std::string& why = all.error().message;
      if (why.find(fmt::format("rank {}: rank 7 at 127.0.0.1:{} does not pass on", rank,
                               listener->port)) == 0)
        ++named;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(named, static_cast<int>(kRelayDegree));
}

}  // namespace
}  // namespace kolo
