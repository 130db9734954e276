// KOLO_WIRE_CHECK=1: whichever message of whichever collective is damaged on its way, every rank
// gets an error that names both ranks and both checksums, and no rank gets a wrong result.
#include "tests/support/device_world.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/rows.h"
#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test::wire_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kCalls = 300;  ///< at most, until the damage shows

/// Damages one message of the job: the n-th one, of all ranks, after arm(n).
class Damage {
 public:
  explicit Damage(FaultyCall::Kind kind) : kind_(kind) {}
  void arm(int n) { left_ = n + 1; }
  bool has_come() const { return left_ <= 0; }
  std::function<std::unique_ptr<Transport>(int, std::unique_ptr<Transport>)> decorator() {
    return [this](int rank, std::unique_ptr<Transport> inner) {
      return std::make_unique<FaultyTransport>(
          std::move(inner),
          [this](const FaultyCall& call) {
            const bool counts =
                call.kind == kind_ && (call.length > 0 || kind_ == FaultyCall::Kind::kMessage);
            return counts && left_.fetch_sub(1) == 1 ? Fault::kDamage : Fault::kNone;
          },
          static_cast<unsigned>(rank) + 1);
    };
  }

 private:
  const FaultyCall::Kind kind_;
  std::atomic<int> left_ = std::numeric_limits<int>::max();
};

struct Case {
  std::string name;
  OperationKind kind = OperationKind::kAllreduce;
  bool in_order = false;
  std::vector<int> hosts = {};  ///< empty: one
  std::size_t count = 3000;
  std::string algorithm = "auto";
  int size = 4;
};
void PrintTo(const Case& each, std::ostream* stream) { *stream << each.name; }

float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 7);
}

/// One call on all ranks, whose result is compared with what it must be.
Status call_once(Runtime& runtime, const Case& with, int rank) {
  const auto size = static_cast<std::size_t>(with.size);
  const std::size_t count = with.count;
  Rows<float> rows;
  for (std::size_t i = 0; i < count * size; ++i) rows.input.push_back(value_of(rank, i));
  const auto mine = static_cast<std::size_t>(rank);
  std::vector<float> expected;
  const auto part_of = [&](int from, std::size_t begin, std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) expected.push_back(value_of(from, begin + i));
  };
  const auto sum_of = [&](std::size_t begin, std::size_t elements) {
    for (std::size_t i = begin; i < begin + elements; ++i) {
      float sum = 0;
      for (int r = 0; r < with.size; ++r) sum += value_of(r, i);
      expected.push_back(sum);
    }
  };
  std::size_t read = count;  // elements of the input
  switch (with.kind) {
    case OperationKind::kAllreduce:
      sum_of(0, count);
      break;
    case OperationKind::kReduceScatter:
      read = count * size;
      sum_of(mine * count, count);
      break;
    case OperationKind::kBroadcast:
      part_of(0, 0, count);
      break;
    case OperationKind::kAllgather:
      for (int r = 0; r < with.size; ++r) part_of(r, 0, count);
      break;
    case OperationKind::kGather:
      if (rank == 0)
        for (int r = 0; r < with.size; ++r) part_of(r, 0, count);
      break;
    case OperationKind::kScatter:
      read = count * size;
      part_of(0, mine * count, count);
      break;
    case OperationKind::kAlltoall:
      read = count * size;
      for (int r = 0; r < with.size; ++r) part_of(r, mine * count, count);
      break;
    case OperationKind::kBarrier:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  rows.input.resize(read);
  if (with.in_order) {
    rows.output.resize(expected.size());
    KOLO_TRY(runtime.call_ordered({.kind = with.kind,
                                   .input = reinterpret_cast<std::byte*>(rows.input.data()),
                                   .output = reinterpret_cast<std::byte*>(rows.output.data()),
                                   .count = static_cast<std::int64_t>(count)}));
  } else {
    Submission submission = rows_of(with.kind, "x", rows, {static_cast<std::int64_t>(read)});
    if (with.kind == OperationKind::kAllreduce || with.kind == OperationKind::kBroadcast) {
      submission.allocate = {};
      rows.output.resize(count);
      submission.output = reinterpret_cast<std::byte*>(rows.output.data());
    }
    KOLO_ASSIGN(const auto work, runtime.submit(std::move(submission)));
    KOLO_TRY(work->wait());
  }
  EXPECT_EQ(rows.output, expected) << "rank " << rank;
  return {};
}

/// Calls until all ranks have failed; expects that they do, with the error.
void check(const Case& with, FaultyCall::Kind what, int number) {
  SCOPED_TRACE(with.name + ", message " + std::to_string(number));
  Damage damage(what);
  std::barrier all(with.size, [&]() noexcept { damage.arm(number); });
  std::atomic<int> told = 0;
  LocalWorldOptions options{.variables = {{"KOLO_WIRE_CHECK", "1"},
                                          {"KOLO_LOG_LEVEL", "off"},
                                          {"KOLO_ALGORITHM", with.algorithm},
                                          {"KOLO_CHUNK_SIZE", "4096"},
                                          {"KOLO_OPERATION_TIMEOUT", "20"}},
                            .hosts = with.hosts,
                            .decorate = damage.decorator()};
  run_local_world(
      with.size,
      [&](int rank, Runtime& runtime) {
        all.arrive_and_wait();
        Status status;
        for (int i = 0; i < kCalls && status.ok(); ++i) status = call_once(runtime, with, rank);
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message,
                    AllOf(HasSubstr("is damaged: rank "), HasSubstr("but what came has "),
                          HasSubstr("KOLO_WIRE_CHECK")))
            << rank;
        if (what == FaultyCall::Kind::kSend && !with.in_order) {
          EXPECT_THAT(status.error().message, HasSubstr("'x'")) << rank;
        }
        ++told;
      },
      options);
  EXPECT_TRUE(damage.has_come());
  EXPECT_EQ(told, with.size);
}

class WireCheck : public testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  using enum OperationKind;
  const std::vector<int> two_hosts = {0, 0, 1, 1};
  std::vector<Case> all;
  for (const char* const algorithm :
       {"auto", "one_shot", "two_shot", "mapped", "ring", "bidirectional_ring",
        "recursive_doubling", "halving_doubling", "double_tree", "hierarchical"})
    all.push_back({.name = algorithm, .algorithm = algorithm});
  all.push_back(
      {.name = "hierarchical_over_two_hosts", .hosts = two_hosts, .algorithm = "hierarchical"});
  all.push_back({.name = "small", .count = 1});
  all.push_back({.name = "in_order", .in_order = true});
  all.push_back({.name = "in_order_of_two", .in_order = true, .count = 1, .size = 2});
  all.push_back(
      {.name = "in_order_of_two_hosts", .in_order = true, .hosts = {0, 1}, .count = 1, .size = 2});
  for (const auto& [name, kind] : {std::pair("broadcast", kBroadcast),
                                   {"allgather", kAllgather},
                                   {"alltoall", kAlltoall},
                                   {"reduce_scatter", kReduceScatter},
                                   {"gather", kGather},
                                   {"scatter", kScatter}}) {
    all.push_back({.name = name, .kind = kind});
    all.push_back({.name = std::string("small_") + name, .kind = kind, .count = 2});
    all.push_back({.name = std::string(name) + "_over_two_hosts",
                   .kind = kind,
                   .hosts = two_hosts,
                   .count = 300'000});
    if (kind != kGather && kind != kScatter)
      all.push_back({.name = std::string("in_order_") + name, .kind = kind, .in_order = true});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calls, WireCheck, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

TEST_P(WireCheck, ADamagedMessageEndsTheJobOnAllRanks) {
  for (const int number : {0, 1, 2, 5, 11}) {
    if (kSanitized && number > 1) return;  // each ends a world
    check(GetParam(), FaultyCall::Kind::kSend, number);
  }
}

TEST(WireCheckOfControl, ADamagedControlMessageEndsTheJobOnAllRanks) {
  for (int number = 0; number < 8; ++number)
    check({.name = "negotiated"}, FaultyCall::Kind::kMessage, number);
}

TEST(WireCheckOfMessages, AMessageBetweenTwoRanksIsChecked) {
  Damage damage(FaultyCall::Kind::kSend);
  std::barrier both(2, [&]() noexcept { damage.arm(0); });
  run_local_world(2,
                  [&](int rank, Runtime& runtime) {
                    both.arrive_and_wait();
                    std::vector<float> values(100, 1.0F);
                    Submission message;
                    message.signature.kind =
                        rank == 0 ? OperationKind::kSend : OperationKind::kReceive;
                    message.signature.root = 1 - rank;
                    message.signature.shape = {100};
                    message.input = message.output = reinterpret_cast<std::byte*>(values.data());
                    message.tag = 5;
                    auto work = runtime.submit_message(std::move(message));
                    ASSERT_TRUE(work.ok());
                    Status status = (*work)->wait();
                    if (rank == 0 && status.ok()) {  // the bytes had left when they were damaged
                      std::vector<float> next(1);
                      const auto sum = runtime.submit(allreduce_of("next", next));
                      status = sum.ok() ? (*sum)->wait() : Status(sum.error());
                    }
                    ASSERT_FALSE(status.ok());
                    EXPECT_THAT(status.error().message,
                                AllOf(HasSubstr("rank 1: the message of 400 bytes"),
                                      HasSubstr("from rank 0 is damaged"), HasSubstr("tag 5")));
                  },
                  {.variables = {{"KOLO_WIRE_CHECK", "1"}, {"KOLO_LOG_LEVEL", "off"}},
                   .decorate = damage.decorator()});
}

// What the check is for.
TEST(WireCheckOff, ADamagedMessageIsAWrongSumWithoutAnError) {
  Damage damage(FaultyCall::Kind::kSend);
  std::barrier both(2, [&]() noexcept { damage.arm(0); });
  std::atomic<int> wrong = 0;
  run_local_world(2,
                  [&](int, Runtime& runtime) {
                    both.arrive_and_wait();
                    std::vector<float> values(3000, 1.0F);
                    ASSERT_DONE(submit(runtime, allreduce_of("x", values)));
                    wrong += values != std::vector<float>(3000, 2.0F) ? 1 : 0;
                  },
                  {.variables = {{"KOLO_SHARED_MEMORY", "0"}}, .decorate = damage.decorator()});
  EXPECT_GE(wrong, 1);
}

TEST(WireCheckStart, DamageWhileLinksAreMeasuredEndsInit) {
  Damage damage(FaultyCall::Kind::kSend);
  damage.arm(3);
  LocalWorldOptions options{.variables = {{"KOLO_WIRE_CHECK", "1"},
                                          {"KOLO_LINK_CACHE", "0"},
                                          {"KOLO_LOG_LEVEL", "off"},
                                          {"KOLO_INIT_TIMEOUT", "20"}},
                            .decorate = damage.decorator()};
  for (const Error& error : refusals(2, options))
    EXPECT_THAT(error.message, HasSubstr("is damaged"));
}

TEST(WireCheckStart, NoMemoryIsMapped) {
  run_local_world(2,
                  [](int, Runtime& runtime) {
                    EXPECT_EQ(runtime.info().shared_bytes, 0U);
                    EXPECT_EQ(runtime.info().arena_bytes, 0U);
                    EXPECT_EQ(*runtime.allocate_if_shared(100), nullptr);
                    EXPECT_THAT(runtime.info().transport, HasSubstr("messages with checksums"));
                  },
                  {.variables = {{"KOLO_WIRE_CHECK", "1"}}});
}

TEST(WireCheckStart, NcclIsRefused) {
  const auto errors =
      refusals(2, {.variables = {{"KOLO_WIRE_CHECK", "1"}, {"KOLO_OPERATIONS", "nccl"}}});
  for (const Error& error : errors)
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("KOLO_WIRE_CHECK=1"), HasSubstr("KOLO_OPERATIONS=nccl")));
}

}  // namespace
}  // namespace kolo::test::wire_check_test
