// Communicator setup over a fake of NCCL: requirements on ranks, late and missing ranks, and errors
// that name ranks.
#include "runtime/nccl/nccl_meeting.h"
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/deadlines.h"
#include "tests/support/fake_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace kolo {
namespace {

using test::FakeNccl;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Met = Result<std::unique_ptr<NcclCommunicator>>;

DeviceUuid uuid_of(int rank) { return {0xab, static_cast<std::uint8_t>(rank)}; }

NcclOffer offer_of(NcclApi& api, int rank) {
  return {.api = &api, .ordinal = rank, .uuid = uuid_of(rank)};
}

/// Ranks as threads; returns each rank's status of the setup. All ranks destroy their communicators
/// together.
std::vector<Status> meet_all(int size, const std::function<NcclOffer(int)>& offer) {
  MemoryStore store;
  std::vector<Status> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      StoreBootstrap bootstrap(store, rank, size);
      Met met = meet_over_nccl(bootstrap, offer(rank), later());
      if (!met.ok()) results[static_cast<std::size_t>(rank)] = met.error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(NcclMeeting, RanksMeetAndPart) {
  FakeNccl nccl;
  for (const Status& met : meet_all(3, [&](int rank) { return offer_of(nccl, rank); }))
    EXPECT_TRUE(met.ok()) << met.error().message;
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<FakeNccl::Call> all = {{"init"}, {"finalize"}, {"destroy"}};
    EXPECT_EQ(nccl.calls(rank), all);
  }
}

TEST(NcclMeeting, AComplaintOfOneIsAnErrorOfAll) {
  FakeNccl nccl;
  const auto results = meet_all(3, [&](int rank) {
    NcclOffer offer = offer_of(nccl, rank);
    if (rank == 1) offer.complaint = "there is no GPU";
    return offer;
  });
  for (const Status& met : results) {
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(met.error().message, HasSubstr("KOLO_OPERATIONS=nccl: rank 1: there is no GPU"));
  }
  EXPECT_EQ(nccl.count(0, "init"), 0);
}

TEST(NcclMeeting, RanksThatShareADeviceAreNamedBeforeNcclSeesThem) {
  FakeNccl nccl;
  const auto shared = [&](int rank) {
    NcclOffer offer = offer_of(nccl, rank);
    if (rank == 2) offer.uuid = uuid_of(0);
    return offer;
  };
  for (const Status& met : meet_all(3, shared)) {
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(met.error().message,
                AllOf(HasSubstr("ranks 0 and 2 share " + to_string(uuid_of(0))),
                      HasSubstr("2.28.9"), HasSubstr("KOLO_OPERATIONS=kolo")));
  }
  EXPECT_EQ(nccl.count(0, "init"), 0);

  FakeNccl newer(23000);
  for (const Status& met : meet_all(3, [&](int rank) {
         NcclOffer offer = shared(rank);
         offer.api = &newer;
         return offer;
       }))
    EXPECT_TRUE(met.ok()) << met.error().message;
}

TEST(NcclMeeting, DifferentNcclsAreNamed) {
  FakeNccl nccl;
  FakeNccl older(22005);
  const auto results =
      meet_all(2, [&](int rank) { return offer_of(rank == 1 ? older : nccl, rank); });
  for (const Status& met : results) {
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(met.error().message,
                AllOf(HasSubstr("rank 0 has NCCL 2.28.9"), HasSubstr("rank 1 has 2.20.5")));
  }
}

TEST(NcclMeeting, WhatNcclSaysOfItsStartIsTold) {
  for (const char* when : {"ncclCommInitRankConfig", "init later"}) {
    FakeNccl nccl;
    nccl.fail(1, when, NcclResult::kSystemError, "no such interface");
    MemoryStore store;
    std::thread first([&] {
      StoreBootstrap bootstrap(store, 0, 2);
      const Met met = meet_over_nccl(bootstrap, offer_of(nccl, 0), soon());
      if (met.ok()) (*met)->abort(Error{ErrorCode::kPeerLost, "rank 1 has failed"});
    });
    StoreBootstrap bootstrap(store, 1, 2);
    const Met met = meet_over_nccl(bootstrap, offer_of(nccl, 1), later());
    first.join();
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, ErrorCode::kDevice);
    EXPECT_THAT(met.error().message,
                AllOf(HasSubstr("rank 1 (" + to_string(uuid_of(1)) + ", device 1)"),
                      HasSubstr("NCCL 2.28.9: ncclCommInitRankConfig: fake NCCL error 2"),
                      HasSubstr("no such interface")));
  }
}

TEST(NcclMeeting, AnIdThatCannotBeMadeIsAnErrorOfAll) {
  FakeNccl nccl;
  nccl.fail(0, "ncclGetUniqueId", NcclResult::kSystemError, "no socket");
  for (const Status& met : meet_all(2, [&](int rank) { return offer_of(nccl, rank); })) {
    ASSERT_FALSE(met.ok());
    EXPECT_THAT(met.error().message, AllOf(HasSubstr("rank 0: NCCL"), HasSubstr("ncclGetUniqueId"),
                                           HasSubstr("no socket")));
  }
}

/// Ranks 0 and 1 of a communicator, without a bootstrap.
struct Pair {
  explicit Pair(NcclApi& api)
      : first(api, {.rank = 0, .size = 2, .world_rank = 4, .ordinal = 0, .uuid = uuid_of(0)}),
        second(api, {.rank = 1, .size = 2, .world_rank = 7, .ordinal = 1, .uuid = uuid_of(1)}) {
    EXPECT_EQ(api.get_unique_id(id), NcclResult::kSuccess);
  }
  NcclUniqueId id = {};
  NcclCommunicator first;
  NcclCommunicator second;
};

TEST(NcclMeeting, NothingBlocksUntilALateRankHasCome) {
  FakeNccl nccl;
  Pair pair(nccl);
  ASSERT_TRUE(pair.first.begin(pair.id).ok());
  for (int i = 0; i < 3; ++i) {
    const auto polled = pair.first.poll();
    ASSERT_TRUE(polled.ok()) << polled.error().message;
    EXPECT_FALSE(*polled);
  }
  ASSERT_TRUE(pair.second.begin(pair.id).ok());
  EXPECT_TRUE(pair.first.wait(later()).ok());
  EXPECT_TRUE(pair.second.wait(later()).ok());
  std::thread other([&] { EXPECT_TRUE(pair.second.finish(later()).ok()); });
  EXPECT_TRUE(pair.first.finish(later()).ok());
  other.join();
}

TEST(NcclMeeting, AMissingRankEndsAtTheDeadline) {
  FakeNccl nccl;
  Pair pair(nccl);
  ASSERT_TRUE(pair.first.begin(pair.id).ok());
  const Status met = pair.first.wait(soon());
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(met.error().message,
              AllOf(HasSubstr("rank 4 (GPU-ab00"), HasSubstr("all 2 ranks"), Not(HasSubstr("7"))));
  EXPECT_EQ(nccl.calls(0).back().name, "abort");
  EXPECT_EQ(nccl.alive(), 0U);
}

TEST(NcclMeeting, AnAbortOfTheWorldEndsTheWait) {
  FakeNccl nccl;
  Pair pair(nccl);
  ASSERT_TRUE(pair.first.begin(pair.id).ok());
  Abort abort;
  abort.raise(Error{ErrorCode::kPeerLost, "rank 7 is gone"}, 7);
  const Status met = pair.first.wait(later(), &abort);
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().message, "rank 7 is gone");
  EXPECT_EQ(nccl.alive(), 0U);
}

}  // namespace
}  // namespace kolo
