// As many ranks as in a large job, over one store. Each sends one request per exchange and gets one
// answer, so the number of messages is linear.
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
#include <thread>
#include <vector>

namespace kolo {
namespace {

constexpr int kRanks = 1000;

TEST(ManyRanks, AThousandExchangeBlobsInOneRoundEach) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4 * kRanks);
  ::setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GT(files.rlim_cur, 2U * kRanks) << "both ends of each connection are in this process";

  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  options.size = kRanks;
  options.secret = "secret";
  const auto server = TcpStoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.error().message;
  const Endpoint endpoint{"127.0.0.1", (*server)->port()};
  const auto deadline = Deadline::after(std::chrono::seconds(100));
  const std::string blob(64, 'x');
  std::atomic<int> good = 0;
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      auto store = TcpStore::join(endpoint, {rank, kRanks, fmt::format("rank {}", rank)}, "secret",
                                  deadline);
      ASSERT_TRUE(store.ok()) << store.error().message;
      StoreBootstrap bootstrap(**store, rank, kRanks);
      const auto all = bootstrap.exchange("hello", blob + std::to_string(rank), deadline);
      ASSERT_TRUE(all.ok()) << all.error().message;
      for (std::size_t r = 0; r < all->size(); ++r) {
        if ((*all)[r] != blob + std::to_string(r)) return;
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

}  // namespace
}  // namespace kolo
