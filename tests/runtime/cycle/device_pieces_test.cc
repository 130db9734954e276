// Collectives other than all-reduce on device memory over several hosts, emulated by threads of one
// process: in pieces through pinned memory, or with network cards that reach the devices. Tests the
// memory used, and failures of a device or the network on the way.
#include "tests/support/device_places.h"
#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::device_pieces_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr auto kType = DataType::kFloat32;
/// Sanitizers are slow: smaller sizes.
constexpr std::size_t kChunk = kSanitized ? 4 << 10 : 16 << 10;
constexpr const char* kChunkText = kSanitized ? "4K" : "16K";
constexpr std::int64_t kColumns = kSanitized ? 251 : 1001;
constexpr OperationKind kKinds[] = {OperationKind::kBroadcast,     OperationKind::kAllgather,
                                    OperationKind::kReduceScatter, OperationKind::kAlltoall,
                                    OperationKind::kGather,        OperationKind::kScatter};

double value_of(int rank, std::size_t i) { return rank * 10 + static_cast<double>(i % 97); }

/// A rank's input and output of a collective with at most `rows` rows per rank.
class RowsOf {
 public:
  RowsOf(OperationKind kind, int size, std::int64_t rows) : kind_(kind), size_(size), most_(rows) {}

  int root() const { return size_ - 1; }
  std::int64_t input_rows(int rank) const {
    if (kind_ == OperationKind::kAllgather || kind_ == OperationKind::kGather)
      return most_ - rank % 3;
    return kind_ == OperationKind::kBroadcast ? most_ : most_ * size_;
  }
  std::vector<double> output(int rank) const {
    std::vector<double> values;
    const auto append = [&](int from, std::int64_t begin, std::int64_t rows) {
      for (std::int64_t i = begin * kColumns; i < (begin + rows) * kColumns; ++i)
        values.push_back(value_of(from, static_cast<std::size_t>(i)));
    };
    const std::int64_t own = rank * most_;  // this rank's first row
    if (kind_ == OperationKind::kBroadcast) append(root(), 0, most_);
    if (kind_ == OperationKind::kScatter) append(root(), own, most_);
    if (kind_ == OperationKind::kReduceScatter) {
      append(0, own, most_);
      for (double& value : values) value = value * size_ + 10.0 * size_ * (size_ - 1) / 2;
    }
    for (int from = 0; from < size_; ++from) {
      const bool gathers = kind_ == OperationKind::kGather && rank == root();
      if (gathers || kind_ == OperationKind::kAllgather) append(from, 0, input_rows(from));
      if (kind_ == OperationKind::kAlltoall) append(from, own, most_);
    }
    return values;
  }

 private:
  OperationKind kind_;
  int size_;
  std::int64_t most_;
};

/// Where an input lies: in memory of its own, or in memory that the ranks of its host reach.
enum class Lies { kApart, kInArena };

/// Runs one collective; checks its result, unless `status` asks for the status.
void run_rows(Runtime& runtime, int rank, int size, OperationKind kind, std::int64_t rows,
              Lies lies = Lies::kApart, Status* status = nullptr) {
  DeviceUser user(runtime);
  const RowsOf data(kind, size, rows);
  const std::int64_t mine = data.input_rows(rank);
  const auto count = static_cast<std::size_t>(mine * kColumns);
  std::shared_ptr<std::byte> shared;
  if (lies == Lies::kInArena) {
    auto allocated = runtime.allocate_on_device(count * size_of(kType));
    if (allocated.ok()) shared = *std::move(allocated);  // fails if a rank is alone on its host
  }
  std::byte* const input = shared != nullptr ? shared.get() : user.allocate(kType, count);
  user.fill(kType, input, count, [=](std::size_t i) { return value_of(rank, i); });
  Submission call =
      on_device(user, kind, std::string(to_string(kind)), kType, input, nullptr, {mine, kColumns});
  call.signature.root = data.root();
  std::byte* output = input;
  std::size_t elements = count;
  if (kind == OperationKind::kBroadcast) {
    call.output = input;
  } else {
    call.allocate = [&](const Shape& shape) {
      elements = static_cast<std::size_t>(shape.front() * kColumns);
      output = user.allocate(kType, elements);
      return output;
    };
  }
  const auto work = runtime.submit(std::move(call));
  const Status done = work.ok() ? finish(user, **work) : Status(work.error());
  if (status != nullptr) {
    *status = done;
    return;
  }
  ASSERT_TRUE(done.ok()) << to_string(kind) << ": " << done.error().message;
  EXPECT_EQ(user.read(kType, output, elements), data.output(rank)) << to_string(kind);
}

class InPieces : public testing::TestWithParam<Place> {
 protected:
  int size() const { return static_cast<int>(GetParam().hosts.size()); }
  bool is_one_a_host() const {
    return std::set(GetParam().hosts.begin(), GetParam().hosts.end()).size() ==
           GetParam().hosts.size();
  }
  /// A piece that `rank` sends.
  bool is_piece(int rank, int sender, const FaultyCall& call) const {
    return running_ && rank == sender && call.kind == FaultyCall::Kind::kSend &&
           call.length > kChunk / 2;
  }
  DeviceSet devices_;
  /// Set when all ranks have measured the links; earlier messages do not count.
  std::atomic<bool> running_ = false;
  std::barrier<> started_{size()};

  void all_have_started() {
    started_.arrive_and_wait();
    running_ = true;
  }
};
INSTANTIATE_TEST_SUITE_P(Places, InPieces, testing::ValuesIn(kPlaces),
                         [](const auto& place) { return std::string(place.param.name); });

TEST_P(InPieces, RowsOfEveryKindAreRight) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (const std::int64_t rows : {3, 60})
          for (const OperationKind kind : kKinds)
            for (const Lies lies : {Lies::kApart, Lies::kInArena})
              run_rows(runtime, rank, size(), kind, rows, lies);
      },
      options_of(GetParam(), kChunkText, devices_));
}

TEST_P(InPieces, OnlyWhatIsOnItsWayIsPinned) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (const OperationKind kind : kKinds) run_rows(runtime, rank, size(), kind, 250);
        const auto& accelerator = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
        // Four pieces each way, or two each way in each of four pipeline slots, or one per rank if
        // each is alone on its host. Unpipelined, each would take sixty or more.
        const bool direct = GetParam().direct && is_one_a_host();
        EXPECT_LE(accelerator.bytes_pinned(), direct ? 0 : 48 * kChunk);
      },
      options_of(GetParam(), kChunkText, devices_));
}

TEST_P(InPieces, MessagesBetweenHostsTakeTheCards) {
  const Place& place = GetParam();
  const int from = 0, to = size() - 1;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        constexpr std::int64_t kCount = 300 * kColumns;
        DeviceUser user(runtime);
        std::byte* const memory = user.allocate(kType, kCount);
        if (rank == from || rank == to) {
          user.fill(kType, memory, kCount, [=](std::size_t i) { return value_of(rank, i); });
          const bool sends = rank == from;
          auto call =
              on_device(user, sends ? OperationKind::kSend : OperationKind::kReceive, "", kType,
                        sends ? memory : nullptr, sends ? nullptr : memory, {kCount});
          call.signature.root = sends ? to : from;
          const auto work = runtime.submit_message(std::move(call));
          ASSERT_TRUE(work.ok()) << work.error().message;
          const Status done = finish(user, **work);
          ASSERT_TRUE(done.ok()) << done.error().message;
          const auto values = user.read(kType, memory, kCount);
          for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], value_of(from, i));
        }
        const auto& accelerator = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
        EXPECT_LE(accelerator.bytes_pinned(), place.direct ? 0 : 4 * kChunk);
      },
      options_of(place, kChunkText, devices_));
}

TEST_P(InPieces, ADeviceThatFailsOnTheWayFailsAllRanks) {
  const Place& place = GetParam();
  const int culprit = size() - 1;
  // Each rank needs data of every other rank until the end.
  for (const OperationKind kind : {OperationKind::kAllgather, OperationKind::kReduceScatter}) {
    DeviceSet devices;
    LocalWorldOptions options = options_of(place, kChunkText, devices);
    std::atomic<int> sent = 0;
    running_ = false;
    decorate(options, [&](int rank, const FaultyCall& call) {
      if (is_piece(rank, culprit, call) && ++sent == 5)
        devices.of[static_cast<std::size_t>(culprit)]->fail();
      return Fault::kNone;
    });
    run_local_world(
        size(),
        [&](int rank, Runtime& runtime) {
          all_have_started();
          Status status;
          run_rows(runtime, rank, size(), kind, 200, Lies::kApart, &status);
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message,
                      AllOf(HasSubstr("illegal memory access"), HasSubstr("rank")));
        },
        options);
    EXPECT_GE(sent, 5);
  }
}

TEST_P(InPieces, AMessageThatFailsOnTheWayFailsAllRanks) {
  const int culprit = size() - 1;
  const bool shares = GetParam().maps && !is_one_a_host();
  const char* const algorithm = shares ? "allgather_hierarchical" : "allgather_ring";
  LocalWorldOptions options = options_of(GetParam(), kChunkText, devices_);
  std::atomic<int> sent = 0;
  decorate(options, [&](int rank, const FaultyCall& call) {
    const bool fails = is_piece(rank, culprit, call) && ++sent == 5;
    return fails ? Fault::kFail : Fault::kNone;
  });
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        all_have_started();
        Status status;
        run_rows(runtime, rank, size(), OperationKind::kAllgather, 200, Lies::kApart, &status);
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message,
                    AllOf(HasSubstr(fmt::format("rank {}", culprit)), HasSubstr(algorithm)));
      },
      options);
}

// The user's stream finishes its work on the output before data is received into it.
TEST(InPiecesOnTwoHosts, AResultWaitsForTheUsersStream) {
  DeviceSet devices;
  LocalWorldOptions options = options_of({"TwoByOne", {0, 1}, {0, 1}}, kChunkText, devices);
  std::promise<void> arrive;
  const std::shared_future<void> arrived = arrive.get_future().share();
  std::atomic<int> sent = 0;
  decorate(options, [&](int rank, const FaultyCall& call) {
    if (rank == 0 && call.kind == FaultyCall::Kind::kSend && call.length > kChunk / 2 &&
        ++sent == 4)
      arrive.set_value();
    return Fault::kNone;
  });
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        constexpr std::size_t kCount = 50 * kColumns;
        DeviceUser user(runtime);
        std::byte* const memory = user.allocate(kType, kCount);
        std::byte* const before = user.allocate(kType, kCount);
        user.fill(kType, memory, kCount, [=](std::size_t) { return rank + 7.0; });
        if (rank == 1) user.hold(arrived);
        EmulatedAccelerator::give(user.stream().handle, [=] {
          for (std::size_t i = 0; i < kCount; ++i)
            store_element(kType, EmulatedAccelerator::behind(before) + i * size_of(kType),
                          slowly(i, load_element(kType, EmulatedAccelerator::behind(memory) +
                                                            i * size_of(kType))));
        });
        const auto work =
            submit(runtime, on_device(user, OperationKind::kBroadcast, "x", kType, memory, memory,
                                      {static_cast<std::int64_t>(kCount)}));
        ASSERT_TRUE(finish(user, *work).ok());
        EXPECT_THAT(user.read(kType, before, kCount), Each(rank + 7.0));
        EXPECT_THAT(user.read(kType, memory, kCount), Each(7.0));
      },
      options);
}

}  // namespace
}  // namespace kolo::test::device_pieces_test
