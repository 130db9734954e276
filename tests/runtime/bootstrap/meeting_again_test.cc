// Ranks that try again after a failed rendezvous, and that meet a second time, by each rendezvous
// method with a store. Leftovers of the former rendezvous and different numbers of tries must not
// matter.
#include "runtime/base/check.h"
#include "runtime/bootstrap/rendezvous.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "tests/runtime/bootstrap/fake_agent.h"
#include "tests/runtime/bootstrap/free_port.h"
#include "tests/support/deadlines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace kolo::meeting_again_test {
namespace {

using test::FakeAgent;
using ::testing::HasSubstr;

/// One rank's whole init; it exchanges `hello`.
Result<std::vector<std::string>> meet_once(RendezvousMethod way, int rank, int size,
                                           const std::string& hello) {
  way.rank = rank;
  way.size = size;
  const Environment nothing(Environment::Variables{});
  KOLO_ASSIGN(auto bootstrap, meet(way, {}, nothing, later()));
  auto all = bootstrap->exchange("hello", hello, later());
  bootstrap->leave(all.ok(), later());
  return all;
}

struct Way {
  const char* name;
  /// Runs the test with a rendezvous method whose servers live meanwhile.
  std::function<void(const std::function<void(const RendezvousMethod&)>&)> with;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

RendezvousMethod by_tcp(std::uint16_t port) {
  RendezvousMethod way;
  way.meeting = Meeting::kTcp;
  way.endpoint = {"127.0.0.1", port};
  return way;
}

void with_rank_0_serving(const std::function<void(const RendezvousMethod&)>& test) {
  test(by_tcp(test::free_port()));
}

void with_the_launcher_serving(const std::function<void(const RendezvousMethod&)>& test) {
  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  const auto server = TcpStoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok());
  RendezvousMethod way = by_tcp((*server)->port());
  way.launcher_serves = true;
  test(way);
}

void with_torchruns_agent(const std::function<void(const RendezvousMethod&)>& test) {
  FakeAgent agent;
  RendezvousMethod way = by_tcp(1);
  way.agent = agent.endpoint();
  way.agent_key = "kolo/job/0";
  test(way);
}

void with_a_file(const std::function<void(const RendezvousMethod&)>& test) {
  RendezvousMethod way;
  way.meeting = Meeting::kFile;
  way.path = fmt::format("{}kolo_meeting_again_{}", ::testing::TempDir(), ::getpid());
  test(way);
  EXPECT_NE(::access(way.path.c_str(), F_OK), 0);
}

/// Two jobs at one port: each rank 0 hears of the other, and neither continues with ranks that may
/// belong to the other job.
TEST(Meeting, OfTwoRanksZeroFailsForBoth) {
  const RendezvousMethod way = by_tcp(test::free_port());
  std::string second;
  std::thread other([&] { second = meet_once(way, 0, 2, "").error().message; });
  const std::string first = meet_once(way, 0, 2, "").error().message;
  other.join();
  const bool is_first_late = first.starts_with("cannot listen");
  EXPECT_THAT(is_first_late ? first : second,
              ::testing::AllOf(HasSubstr("cannot listen at"), HasSubstr("kolo's store there says"),
                               HasSubstr("two processes say that they are rank 0")));
  EXPECT_THAT(is_first_late ? second : first, HasSubstr("two processes say that they are rank 0"));
}

class MeetingAgain : public ::testing::TestWithParam<Way> {};

TEST_P(MeetingAgain, AfterAMeetingThatEndedWell) {
  GetParam().with([](const RendezvousMethod& way) {
    const auto rank = [&](int number) {
      for (const char* round : {"a", "b", "c", "d", "e"}) {
        const auto all = meet_once(way, number, 2, round);
        ASSERT_TRUE(all.ok()) << "rank " << number << ": " << all.error().message;
        EXPECT_THAT(*all, ::testing::ElementsAre(round, round));
      }
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
  });
}

TEST_P(MeetingAgain, AfterRanksThatDisagreed) {
  GetParam().with([](const RendezvousMethod& way) {
    const auto rank = [&](int number) {
      const auto wrong = meet_once(way, number, 2 + number, "wrong");
      ASSERT_FALSE(wrong.ok());
      EXPECT_THAT(wrong.error().message, HasSubstr("ranks disagree on their number"));
      const auto all = meet_once(way, number, 2, "right");
      ASSERT_TRUE(all.ok()) << "rank " << number << ": " << all.error().message;
      EXPECT_THAT(*all, ::testing::ElementsAre("right", "right"));
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(All, MeetingAgain,
                         ::testing::Values(Way{"Rank0Serves", with_rank_0_serving},
                                           Way{"LauncherServes", with_the_launcher_serving},
                                           Way{"TorchrunsAgent", with_torchruns_agent},
                                           Way{"File", with_a_file}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Meeting, Rank0TellsWhoCameWithAnotherSecret) {
  with_rank_0_serving([](RendezvousMethod way) {
    const Environment nothing(Environment::Variables{});
    way.size = 2;
    std::vector<std::string> warnings;
    const auto warn = [&](const std::string& line) { warnings.push_back(line); };
    auto first = meet(way, {.secret = "a", .warn = warn}, nothing, later());
    ASSERT_TRUE(first.ok()) << first.error().message;
    way.rank = 1;
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_THAT(meet(way, {.secret = "b"}, nothing, later()).error().message,
                  HasSubstr("knows another secret"));
    }
    const auto all = (*first)->exchange("hello", "a", soon());
    ASSERT_FALSE(all.ok());
    const std::string line = "somebody at 127.0.0.1, as rank 1, came with another secret";
    EXPECT_EQ(all.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(all.error().message, HasSubstr("in time: 1; "));
    EXPECT_THAT(all.error().message, HasSubstr("; " + line));
    (*first)->leave(false, later());
    EXPECT_THAT(warnings, ::testing::Contains(HasSubstr(line)).Times(1));
  });
}

TEST(StoreMeetings, ARankThatHasEndedFailsTheMeetingsThatItHasNotJoined) {
  StoreMeetings meetings(2, "the launcher");
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(meetings.join({rank, 2, "a test"}).ok());
    meetings.table(1).leave(rank, /*orderly=*/true);
  }
  meetings.note_gone(1);
  EXPECT_FALSE(meetings.table(1).failure()) << "rank 1 has met rank 0 there";
  const auto again = meetings.join({0, 2, "a test"});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(again.error().message, HasSubstr("rank 1 ended with exit status 0"));

  StoreMeetings first(2, "the launcher");
  ASSERT_TRUE(first.join({0, 2, "a test"}).ok());
  first.note_gone(1);
  EXPECT_TRUE(first.table(1).failure());
}

}  // namespace
}  // namespace kolo::meeting_again_test
