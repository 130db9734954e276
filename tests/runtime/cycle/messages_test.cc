// Sends and receives between in-process ranks: order, tags, both directions, self-messages, and
// pairs that do not match.
#include "tests/support/faulty_transport.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <numeric>
#include <thread>

namespace kolo::test::messages_test {
namespace {

using testing::HasSubstr;

std::shared_ptr<Work> message(Runtime& runtime, OperationKind kind, std::vector<float>& values,
                              int peer, std::uint32_t tag = 0, std::uint32_t set = 0) {
  Submission submission;
  submission.signature.kind = kind;
  submission.signature.root = peer;
  submission.signature.shape = {static_cast<std::int64_t>(values.size())};
  submission.input = submission.output = reinterpret_cast<std::byte*>(values.data());
  submission.tag = tag;
  submission.process_set = set;
  auto work = runtime.submit_message(std::move(submission));
  EXPECT_TRUE(work.ok()) << work.error().message;
  return work.ok() ? *std::move(work) : nullptr;
}

std::shared_ptr<Work> send(Runtime& runtime, std::vector<float>& values, int to,
                           std::uint32_t tag = 0, std::uint32_t set = 0) {
  return message(runtime, OperationKind::kSend, values, to, tag, set);
}

std::shared_ptr<Work> receive(Runtime& runtime, std::vector<float>& values, int from,
                              std::uint32_t tag = 0, std::uint32_t set = 0) {
  return message(runtime, OperationKind::kReceive, values, from, tag, set);
}

class Messages : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Messages, testing::Values(1, 2, 3, 5));

TEST_P(Messages, AllToAllOfManySizesAtOnce) {
  const int size = GetParam();
  constexpr std::size_t kSizes[] = {0, 1, 7, 1000, 70'001, 300'000};
  run_local_world(size, [&](int rank, Runtime& runtime) {
    std::vector<std::vector<float>> sent;
    std::vector<std::vector<float>> received;
    std::vector<std::shared_ptr<Work>> works;
    sent.reserve(std::size(kSizes) * static_cast<std::size_t>(size));
    received.reserve(sent.capacity());
    for (const std::size_t count : kSizes) {
      for (int peer = 0; peer < size; ++peer) {
        auto& out = sent.emplace_back(count, static_cast<float>(rank * 100 + peer));
        works.push_back(send(runtime, out, peer));
        auto& in = received.emplace_back(count, -1.0F);
        works.push_back(receive(runtime, in, peer));
      }
    }
    for (const auto& work : works) ASSERT_DONE(work);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const int peer = static_cast<int>(i) % size;
      for (const float value : received[i]) ASSERT_EQ(value, static_cast<float>(peer * 100 + rank));
    }
  });
}

TEST(Messages, MeetByTagAndInOrder) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    std::vector<float> a{1};
    std::vector<float> b{2};
    std::vector<float> c{3};
    if (rank == 0) {
      const auto works = {send(runtime, a, 1, 7), send(runtime, b, 1, 7), send(runtime, c, 1, 9)};
      for (const auto& work : works) ASSERT_DONE(work);
    } else {
      ASSERT_DONE(receive(runtime, c, 0, 9));
      ASSERT_DONE(receive(runtime, a, 0, 7));
      ASSERT_DONE(receive(runtime, b, 0, 7));
    }
    EXPECT_EQ(a.front(), 1);
    EXPECT_EQ(b.front(), 2);
    EXPECT_EQ(c.front(), 3);
  });
}

TEST_P(Messages, FromAnyRankComeOnceEachWithTheirSender) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    constexpr int kEach = 3;
    std::vector<float> mine(1000, static_cast<float>(rank));
    std::vector<std::shared_ptr<Work>> sent;
    for (int i = 0; i < kEach; ++i) {
      for (int peer = 0; peer < size; ++peer) sent.push_back(send(runtime, mine, peer, 5));
    }
    std::vector<int> of_each(static_cast<std::size_t>(size));
    std::vector<float> got(mine.size());
    // Some are there before they come, and one is for a rank by name.
    for (int i = 0; i < size * kEach; ++i) {
      const auto work = receive(runtime, got, i == 1 ? size - 1 : kAnyRank, 5);
      ASSERT_DONE(work);
      const std::int64_t sender = work->outcome().value;
      ASSERT_EQ(got.back(), static_cast<float>(sender));
      ++of_each[static_cast<std::size_t>(sender)];
    }
    EXPECT_THAT(of_each, testing::Each(kEach));
    for (const auto& work : sent) ASSERT_DONE(work);
  });
}

TEST(Messages, FromAnyRankTakeTheirTurnWithThoseByName) {
  std::latch posted(1);
  run_local_world(2, [&](int rank, Runtime& runtime) {
    std::vector<float> first{1};
    std::vector<float> second{2};
    if (rank == 1) {
      posted.wait();
      ASSERT_DONE(send(runtime, first, 0));
      ASSERT_DONE(send(runtime, second, 0));
      return;
    }
    std::vector<float> any{0};
    std::vector<float> named{0};
    const auto older = receive(runtime, any, kAnyRank);
    const auto younger = receive(runtime, named, 1);
    posted.count_down();
    ASSERT_DONE(older);
    ASSERT_DONE(younger);
    EXPECT_EQ(any, first);
    EXPECT_EQ(named, second);
  });
}

TEST(Messages, FromAnyRankEndWhereNobodyIsLeft) {
  std::latch waiting(1);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    std::vector<float> got{0};
    if (rank > 0) {
      waiting.wait();
      runtime.shut_down();
      return;
    }
    const auto work = receive(runtime, got, kAnyRank, 2);
    waiting.count_down();
    const std::string why = "recv from any rank with tag 2: all others have shut down";
    const Status status = work->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(status.error().message, HasSubstr(why));
    EXPECT_THAT(receive(runtime, got, kAnyRank, 2)->wait().error().message, HasSubstr(why));
  });
}

TEST(Messages, BesideCollectivesAndInAProcessSet) {
  LocalWorldOptions options;
  options.process_sets = {{1, 2}};
  run_local_world(
      3,
      [](int rank, Runtime& runtime) {
        for (int step = 0; step < 20; ++step) {
          std::vector<float> all(5000, 1.0F);
          const auto work = submit(runtime, allreduce_of("t", all));
          std::vector<float> token(3, static_cast<float>(step));
          std::vector<float> got(3);
          if (rank > 0) {
            const auto sent = send(runtime, token, 3 - rank, 1, 1);
            ASSERT_DONE(receive(runtime, got, 3 - rank, 1, 1));
            ASSERT_DONE(sent);
            EXPECT_EQ(got, token);
          }
          ASSERT_DONE(work);
          EXPECT_EQ(all.back(), 3.0F);
        }
      },
      options);
}

TEST(Messages, ThatDoNotFitFailOnBothSidesAndNothingElse) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    for (const std::size_t length : {4U, 100'000U, 0U}) {
      std::vector<float> five(5, 1.0F);
      std::vector<float> other(length, 1.0F);
      const auto work = rank == 0 ? send(runtime, five, 1, 3) : receive(runtime, other, 0, 3);
      const Status status = work->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
      EXPECT_EQ(status.error().message,
                "message with tag 3: rank 0 sends 5 elements of float32, but rank 1 receives " +
                    std::to_string(length) + " of float32; both must give the same count and type");
      EXPECT_TRUE(std::all_of(other.begin(), other.end(), [](float v) { return v == 1.0F; }));
    }
    std::vector<float> next(3, static_cast<float>(rank));
    ASSERT_DONE(rank == 0 ? send(runtime, next, 1, 3) : receive(runtime, next, 0, 3));
    EXPECT_EQ(next.front(), 0.0F);
  });
}

TEST(Messages, ThatNobodyReceivesTimeOut) {
  LocalWorldOptions options;
  options.variables["KOLO_OPERATION_TIMEOUT"] = "1";
  std::atomic<bool> over = false;
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(3, 1.0F);
        if (rank == 0) {
          const Status status = send(runtime, values, 1, 3)->wait();
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
          EXPECT_THAT(status.error().message, HasSubstr("rank 1 has not called recv() within 1 s"));
          over = true;
          over.notify_all();
        }
        over.wait(false);
        ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
      },
      options);
}

TEST(Messages, AReceiveAfterTheSendHasEndedIsTheErrorOfBoth) {
  LocalWorldOptions options;
  options.variables["KOLO_OPERATION_TIMEOUT"] = "1";
  std::latch ended(1);
  std::latch told(1);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(3, 1.0F);
        if (rank == 0) {
          EXPECT_FALSE(send(runtime, values, 1, 3)->wait().ok());
          ended.count_down();
          told.wait();
          EXPECT_TRUE(runtime.failed());
          return;
        }
        ended.wait();
        const Status status = receive(runtime, values, 0, 3)->wait();
        told.count_down();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message,
                    HasSubstr("rank 0: rank 1 has called recv() for 3 elements of float32 from "
                              "this rank after 1 s (KOLO_OPERATION_TIMEOUT) had ended their send"));
      },
      options);
}

/// A message to or from a rank that has shut down fails.
void expect_lost(const std::shared_ptr<Work>& work, const std::string& message) {
  ASSERT_NE(work, nullptr);
  const Status status = work->wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(status.error().message, message);
}

TEST(Messages, ToAndFromARankThatHasShutDownFailAtOnceAndNothingElse) {
  LocalWorldOptions options;
  options.process_sets = {{1, 2}};
  std::latch waiting(2);
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        std::vector<float> a(3, 1.0F);
        std::vector<float> b(3, 1.0F);
        std::vector<float> c(100'000, 1.0F);
        if (rank == 2) {
          // An offer that its receiver sees too late.
          const auto never = send(runtime, a, 0, 8);
          waiting.wait();
          runtime.shut_down();
          EXPECT_FALSE(never->wait().ok());
          return;
        }
        const std::string me = "rank " + std::to_string(rank) + ": ";
        const auto early_send = send(runtime, c, 2, 3);
        const auto early_receive = receive(runtime, b, 2, 4);
        const auto in_set = rank == 1 ? receive(runtime, a, 2, 5, 1) : nullptr;
        waiting.count_down();
        expect_lost(early_send, me + "send to rank 2 with tag 3: rank 2 has shut down and will "
                                     "never call recv()");
        expect_lost(early_receive, me + "recv from rank 2 with tag 4: rank 2 has shut down and "
                                        "will never call send()");
        if (in_set) {
          expect_lost(in_set, me + "recv from rank 2 with tag 5: rank 2 has shut down and will "
                                   "never call send()");
        }
        expect_lost(send(runtime, a, 2, 6),
                    me + "send to rank 2 with tag 6: rank 2 has shut down and will never call "
                         "recv()");
        expect_lost(receive(runtime, a, 2, 8),
                    me + "recv from rank 2 with tag 8: rank 2 has shut down and will never call "
                         "send()");
        // The remaining ranks still exchange messages.
        ASSERT_DONE(rank == 0 ? send(runtime, a, 1) : receive(runtime, a, 0));
      },
      options);
}

TEST(Messages, OfARankThatShutsDownInTheirMidstEndAtOnce) {
  // Whatever the order of arrival, accepted or not, begun or not: no rank waits for a timeout.
  for (int round = 0; round < 30; ++round) {
    run_local_world(2, [&](int rank, Runtime& runtime) {
      std::vector<float> values(round % 3 == 0 ? 10 : 3'000'000, 1.0F);
      if (rank == 0) {
        const auto work = round % 2 == 0 ? send(runtime, values, 1) : receive(runtime, values, 1);
        const Status status = work->wait();
        if (!status.ok()) {
          EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
          EXPECT_THAT(status.error().message,
                      testing::ContainsRegex("rank 1 has (shut down|left)"));
        }
      } else {
        const auto work = round % 2 == 0 ? receive(runtime, values, 0) : send(runtime, values, 0);
        for (int i = 0; i < round * 20; ++i) std::this_thread::yield();
        runtime.shut_down();
      }
    });
  }
}

TEST(Messages, UnderWayLeaveCollectivesTheirPlaces) {
  constexpr std::size_t kCount = 1000;  // elements, of messages alone
  LocalWorldOptions options;
  options.decorate = [](int, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<FaultyTransport>(std::move(inner), [](const FaultyCall& call) {
      const bool drops =
          call.kind == FaultyCall::Kind::kSend && call.length == kCount * sizeof(float);
      return drops ? Fault::kDrop : Fault::kNone;
    });
  };
  std::latch looked(2);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        // More operations than run at once.
        std::vector<std::vector<float>> stuck(20, std::vector<float>(kCount, 1.0F));
        std::vector<std::shared_ptr<Work>> works;
        for (auto& values : stuck)
          works.push_back(rank == 0 ? send(runtime, values, 1) : receive(runtime, values, 0));
        std::vector<float> values(3, 1.0F);
        for (int i = 0; i < 10; ++i) {
          const auto sum = submit(runtime, allreduce_of("t", values));
          const Status status =
              sum->wait(std::chrono::steady_clock::now() + std::chrono::seconds(20));
          EXPECT_TRUE(status.ok()) << status.error().message;
          if (!status.ok()) break;
        }
        for (const auto& work : works) EXPECT_FALSE(work->done());
        looked.arrive_and_wait();  // operations fail when a rank leaves, so wait before that
      },
      options);
}

/// Submits a message that its own rank refuses.
std::string refuse(Runtime& runtime, OperationKind kind, int peer, std::uint32_t set = 0) {
  Submission submission;
  submission.signature.kind = kind;
  submission.signature.root = peer;
  submission.signature.shape = {3};  // at a null pointer
  submission.tag = 3;
  submission.process_set = set;
  const auto work = runtime.submit_message(std::move(submission));
  EXPECT_FALSE(work.ok());
  return work.ok() ? "" : work.error().message;
}

TEST(Messages, ThatOneRankRefusesFailOnTheOtherAndKeepTheirPlace) {
  LocalWorldOptions options;
  options.variables["KOLO_OPERATION_TIMEOUT"] = "5";
  for (const int size : {1, 2}) {
    for (const OperationKind refused : {OperationKind::kSend, OperationKind::kReceive}) {
      run_local_world(
          size,
          [&](int rank, Runtime& runtime) {
            const int peer = size - 1 - rank;
            std::vector<float> sent{1, 2, 3};
            std::vector<float> received(3);
            const bool sends = rank == 0;
            const bool receives = rank == size - 1;
            const bool refuses = refused == OperationKind::kSend ? sends : receives;
            const std::string word = refused == OperationKind::kSend ? "send" : "recv";
            if (refuses) {
              EXPECT_EQ(
                  refuse(runtime, refused, peer),
                  "rank " + std::to_string(rank) + ": " + word + ": the memory is a null pointer");
            }
            if (size == 1 || !refuses) {
              const auto met = refused == OperationKind::kSend ? receive(runtime, received, peer, 3)
                                                               : send(runtime, sent, peer, 3);
              const Status status = met->wait();
              ASSERT_FALSE(status.ok());
              EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
              EXPECT_THAT(status.error().message,
                          HasSubstr("with tag 3: rank " + std::to_string(peer) +
                                    ", its other side, has refused it: the memory is a null"));
            }
            // Both refuse one; the next ones meet.
            if (sends) refuse(runtime, OperationKind::kSend, peer);
            if (receives) refuse(runtime, OperationKind::kReceive, peer);
            const auto send_work = sends ? send(runtime, sent, peer, 3) : nullptr;
            if (receives) {
              ASSERT_DONE(receive(runtime, received, peer, 3));
              EXPECT_EQ(received, (std::vector<float>{1, 2, 3}));
            }
            if (send_work) ASSERT_DONE(send_work);
          },
          options);
    }
  }
}

TEST(Messages, ThatARankRefusesAndNobodyMeetsDisturbNothing) {
  LocalWorldOptions options;
  options.process_sets = {{0, 1}};
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(3, 1.0F);
        if (rank == 0) {
          refuse(runtime, OperationKind::kReceive, 1, 1);
          refuse(runtime, OperationKind::kSend, 1, 1);
        }
        ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
        // It is not in flight: the set can be removed.
        const auto removed = runtime.remove_process_set(1);
        ASSERT_TRUE(removed.ok());
        ASSERT_DONE(*removed);
      },
      options);
}

TEST(Messages, ToNobodyAreRefused) {
  run_local_world(1, [](int, Runtime& runtime) {
    Submission submission;
    submission.signature.kind = OperationKind::kSend;
    submission.signature.root = 1;
    EXPECT_EQ(runtime.submit_message(submission).error().message,
              "rank 0: send: peer 1 is no rank; ranks are 0 to 0");
  });
}

}  // namespace
}  // namespace kolo::test::messages_test
