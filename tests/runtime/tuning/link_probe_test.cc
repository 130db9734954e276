// The measurement of the links: which ranks measure which links, and that all ranks get the same.
#include "runtime/tuning/link_probe.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"
#include "tests/support/transport_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace kolo::test {
namespace {

/// The costs that each rank gets in a world on `hosts` hosts, with the ranks dealt out in turn.
std::vector<LinkCosts> probe(int size, int hosts) {
  MemoryStore store;
  std::vector<LinkCosts> all(static_cast<std::size_t>(size));
  run_transport_threads(size, [&](int rank, Transport& transport) {
    std::vector<RankInfo> infos(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r)
      infos[static_cast<std::size_t>(r)].host_id = "host" + std::to_string(r % hosts);
    const World world(rank, std::move(infos));
    StoreBootstrap bootstrap(store, rank, size);
    const Abort abort;
    const ProbeLimits limits{abort, Deadline::after(std::chrono::seconds(20)),
                             [] { return Status(); }, [](Error why) { return why; }};
    auto costs = probe_links(bootstrap, transport, world, host_device(), limits);
    ASSERT_TRUE(costs.ok()) << costs.error().message;
    all[static_cast<std::size_t>(rank)] = *costs;
  });
  return all;
}

bool is_measured(const LinkCost& link) {
  return link.latency_us > 0 && link.us_per_byte >= 0 && link.reduce_us_per_byte > 0 &&
         link.crowd_us > 0 && link.early_us >= 0 &&
         link.early_us <= LinkCost::kShortMessage * link.us_per_byte;
}
bool is_absent(const LinkCost& link) { return link.latency_us == 0 && link.us_per_byte == 0; }

TEST(LinkProbe, MeasuresTheLinksThatThereAre) {
  const auto one_host = probe(3, 1);
  EXPECT_TRUE(is_measured(one_host[0].inside));
  EXPECT_TRUE(is_absent(one_host[0].across));
  const auto each_its_own = probe(3, 3);
  EXPECT_TRUE(is_absent(each_its_own[0].inside));
  EXPECT_TRUE(is_measured(each_its_own[0].across));
  const auto both = probe(5, 2);
  EXPECT_TRUE(is_measured(both[0].inside));
  EXPECT_TRUE(is_measured(both[0].across));
  EXPECT_TRUE(is_absent(probe(1, 1)[0].inside));
}

TEST(LinkProbe, AllRanksGetTheSameNumbers) {
  const auto all = probe(5, 2);
  for (const LinkCosts& costs : all) {
    for (const auto member : {&LinkCosts::inside, &LinkCosts::across}) {
      for (const auto number : kLinkCostNumbers)
        EXPECT_EQ(costs.*member.*number, all.front().*member.*number);
    }
  }
}

/// The error of rank 0 of two when the other rank never arrives, and rank 0 is told so.
Status without_the_other(const std::function<Status(Bootstrap&, Transport&, const World&,
                                                    const ProbeLimits&)>& measure) {
  MemoryStore store;
  Status ended;
  run_transport_threads(2, [&](int rank, Transport& transport) {
    if (rank == 1) return;
    const World world(rank, std::vector<RankInfo>(2));
    StoreBootstrap bootstrap(store, rank, 2);
    const Abort abort;
    const ProbeLimits limits{abort, Deadline::never(),
                             [] { return KOLO_ERROR(kPeerLost, "rank 1 is lost"); },
                             [](Error why) { return why; }};
    ended = measure(bootstrap, transport, world, limits);
  });
  return ended;
}

TEST(LinkProbe, ARankThatIsLostMeanwhileEndsIt) {
  const auto probing = without_the_other(
      [](auto& bootstrap, auto& transport, const auto& world, const auto& limits) -> Status {
        KOLO_TRY(probe_links(bootstrap, transport, world, host_device(), limits));
        return {};
      });
  for (const Status& ended : {probing, without_the_other(open_links)}) {
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(ended.error().message, "rank 1 is lost");
  }
}

TEST(LinkProbe, ARankAsksBeforeItBlamesAnotherAndBeforeItsLinksGo) {
  run_transport_threads(2, [&](int rank, Transport& transport) {
    if (rank == 1) return;
    MemoryStore store;
    StoreBootstrap bootstrap(store, 0, 1);
    const World world(rank, std::vector<RankInfo>(2));
    const Abort abort;
    const auto ask = [&](const Error& why) -> Error {
      EXPECT_EQ(why.message, "rank 1 is lost");
      EXPECT_TRUE(transport.flush(Abort(), Deadline::after(std::chrono::seconds(20))).ok())
          << "this rank's links are there";
      return KOLO_ERROR(kPeerLost, "rank 2 is lost");
    };
    const ProbeLimits limits{abort, Deadline::never(),
                             [] { return KOLO_ERROR(kPeerLost, "rank 1 is lost"); }, ask};
    const Status ended = open_links(bootstrap, transport, world, limits);
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().message, "rank 2 is lost");
  });
}

TEST(LinkProbe, WhatCannotBeSentEndsItWithTheReason) {
  LocalWorldOptions options;
  options.hosts = {0, 1};
  options.variables = {{"KOLO_INIT_TIMEOUT", "20"}};
  options.decorate = [](int, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<FaultyTransport>(std::move(inner), [](const FaultyCall& call) {
      return call.kind == FaultyCall::Kind::kSend ? Fault::kFail : Fault::kNone;
    });
  };
  for (const Error& error : refusals(2, options)) {
    EXPECT_THAT(error.message, testing::HasSubstr("injected fault in send to"));
  }
}

TEST(LinkProbe, ALostRankSaysMoreThanWhatFailsForIt) {
  LocalWorldOptions options;
  options.hosts = {0, 1};
  options.variables = {{"KOLO_INIT_TIMEOUT", "20"}};
  options.decorate = [](int rank, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner),
                                                    [](const FaultyCall&) { return Fault::kNone; });
    faulty->lose(1 - rank);
    return faulty;
  };
  for (const Error& error : refusals(2, options)) {
    EXPECT_EQ(error.code, ErrorCode::kPeerLost) << error.message;
    EXPECT_THAT(error.message, testing::HasSubstr(") is lost"));
  }
}

}  // namespace
}  // namespace kolo::test
