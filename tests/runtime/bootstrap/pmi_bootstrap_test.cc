// The rendezvous over PMI: ranks as threads meet over a server of their own.
#include "runtime/bootstrap/pmi_bootstrap.h"
#include "tests/support/deadlines.h"
#include "tests/support/pmi_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace kolo::pmi_bootstrap_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using Blobs = Result<std::vector<std::string>>;

using Count = std::shared_ptr<int>;  ///< MeetingParts::exchanges
Count none() { return std::make_shared<int>(0); }

std::unique_ptr<Bootstrap> join(const PmiServer& server, int rank, Count exchanges = none()) {
  auto joined = make_pmi_bootstrap(server.environment(rank), std::move(exchanges), later());
  EXPECT_TRUE(joined.ok()) << joined.error().message;
  return joined.ok() ? *std::move(joined) : nullptr;
}

template <class Function>
void on_each(int size, Function function) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([=] { function(rank); });
  for (std::thread& thread : threads) thread.join();
}

/// Binary, with another length on each rank: rank 0's is empty, others need many pieces.
std::string blob(int rank, int round) {
  std::string bytes;
  for (int i = 0; i < rank * 700; ++i) bytes += static_cast<char>(i * 31 + rank + round);
  return bytes;
}

TEST(PmiBootstrap, AllRanksGetAllBlobs) {
  PmiServer server(4);
  on_each(4, [&](int rank) {
    const Count exchanges = none();
    for (int number = 1; number < 3; ++number) {
      const auto pmi = join(server, rank, exchanges);
      ASSERT_TRUE(pmi);
      EXPECT_EQ(pmi->rank(), rank);
      EXPECT_EQ(pmi->size(), 4);
      for (int round = 0; round < 3; ++round) {
        const Blobs blobs =
            pmi->exchange(fmt::format("phase {}", round), blob(rank, number + round), later());
        ASSERT_TRUE(blobs.ok()) << blobs.error().message;
        for (int from = 0; from < 4; ++from) {
          EXPECT_EQ((*blobs)[static_cast<std::size_t>(from)], blob(from, number + round));
        }
      }
    }
  });
}

TEST(PmiBootstrap, TheMissingAreNamed) {
  PmiServer server(5);
  on_each(5, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    const auto pmi = join(server, rank);
    ASSERT_TRUE(pmi);
    const Blobs blobs = pmi->exchange("addresses", "x", Deadline::after(milliseconds(1500)));
    ASSERT_FALSE(blobs.ok());
    EXPECT_EQ(blobs.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(blobs.error().message,
                AllOf(HasSubstr(fmt::format("rank {}: 2 of 5 ranks", rank)),
                      HasSubstr("phase 'addresses'"), HasSubstr("in time: 1, 3; see")));
  });
}

TEST(PmiBootstrap, WhoWaitsLongIsMetAllTheSame) {
  std::atomic<int> announced = 0;
  // The last rank arrives when the others have registered, and while one still does so.
  PmiServer server(3, [&](int, const std::string& command) -> std::optional<std::string> {
    if (command == "publish_name") ++announced;
    return std::nullopt;
  });
  on_each(3, [&](int rank) {
    const auto pmi = join(server, rank);
    ASSERT_TRUE(pmi);
    while (rank == 2 && announced < 1) std::this_thread::yield();
    const Blobs blobs = pmi->exchange("phase", std::to_string(rank), later());
    ASSERT_TRUE(blobs.ok()) << blobs.error().message;
    EXPECT_THAT(*blobs, testing::ElementsAre("0", "1", "2"));
  });
}

TEST(PmiBootstrap, RanksOutOfStepAreToldApart) {
  PmiServer server(2);
  on_each(2, [&](int rank) {
    const auto pmi = join(server, rank);
    ASSERT_TRUE(pmi);
    const Blobs blobs = pmi->exchange(rank == 0 ? "windows" : "addresses", "x", later());
    ASSERT_FALSE(blobs.ok());
    EXPECT_EQ(blobs.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(blobs.error().message, AllOf(HasSubstr("'windows'"), HasSubstr("'addresses'")));
  });
}

TEST(PmiBootstrap, RanksMeetAgainWhereOneHasFailedAlone) {
  PmiServer server(2);
  on_each(2, [&](int rank) {
    const Count exchanges = none();
    // Rank 0 gives up after the first exchange and starts anew while rank 1 makes its second.
    EXPECT_TRUE(join(server, rank, exchanges)->exchange("handshake", "old", later()).ok());
    const Blobs apart = join(server, rank, exchanges)
                            ->exchange(rank == 0 ? "handshake" : "addresses", "stale", later());
    ASSERT_FALSE(apart.ok());
    EXPECT_EQ(apart.error().code, ErrorCode::kMismatch);
    const auto again = join(server, rank, exchanges);
    for (const char* const phase : {"handshake", "addresses"}) {
      const Blobs blobs = again->exchange(phase, std::to_string(rank), later());
      ASSERT_TRUE(blobs.ok()) << blobs.error().message;
      EXPECT_THAT(*blobs, testing::ElementsAre("0", "1"));
    }
  });
}

TEST(PmiBootstrap, GarbledValuesAreRefused) {
  for (const char* value : {"", "unknown", "x.AAAA", "1.A", "1.AAAA", "0.", "2.",
                            "99999999999999.AAAA", "-1.AAAA", "1.AB=="}) {
    PmiServer server(1, [&](int, const std::string& command) -> std::optional<std::string> {
      if (command != "get") return std::nullopt;
      return fmt::format("cmd=get_result rc=0 msg=success value={}\n", value);
    });
    const auto pmi = join(server, 0);
    ASSERT_TRUE(pmi);
    const Blobs blobs = pmi->exchange("phase", "x", later());
    ASSERT_FALSE(blobs.ok()) << value;
    EXPECT_EQ(blobs.error().code, ErrorCode::kTransport);
    EXPECT_THAT(blobs.error().message, HasSubstr("from rank 0"));
  }
}

TEST(PmiBootstrap, ALauncherThatEndsIsNoticed) {
  PmiServer server(2, [](int, const std::string& command) -> std::optional<std::string> {
    return command == "barrier_in" ? std::optional<std::string>("") : std::nullopt;
  });
  const auto pmi = join(server, 0);
  ASSERT_TRUE(pmi);
  std::thread ends([&] {
    while (server.count(0, "barrier_in") == 0) std::this_thread::yield();
    server.end();
  });
  const Blobs blobs = pmi->exchange("phase", "x", later());
  ends.join();
  ASSERT_FALSE(blobs.ok());
  EXPECT_EQ(blobs.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(blobs.error().message, AllOf(HasSubstr("'barrier_out'"), HasSubstr("PMI_FD=")));
  pmi->finalize();  // to nobody
}

TEST(PmiBootstrap, TheEndIsSaid) {
  PmiServer server(1);
  const auto pmi = join(server, 0);
  ASSERT_TRUE(pmi);
  EXPECT_EQ(server.count(0, "finalize"), 0);
  pmi->finalize();
  EXPECT_EQ(server.count(0, "finalize"), 1);
  pmi->finalize_alone();
  EXPECT_EQ(server.count(0, "finalize"), 2) << "after a failure, too";
}

}  // namespace
}  // namespace kolo::pmi_bootstrap_test
