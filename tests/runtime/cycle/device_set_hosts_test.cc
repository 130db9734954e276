// Process sets on device memory over several hosts, emulated by threads of one process: several
// sets at once, which share ranks, beside the world. Inside a host they use their own windows.
#include "tests/support/device_places.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::device_set_hosts_test {
namespace {

constexpr auto kType = DataType::kInt32;
constexpr OperationKind kKinds[] = {OperationKind::kAllreduce, OperationKind::kReduceScatter,
                                    OperationKind::kAllgather, OperationKind::kBroadcast};
/// Elements of each rank's part: more than a piece.
constexpr std::size_t kPart = kSanitized ? 3001 : 30'001;

double value_of(int rank, std::size_t i) { return rank * 1000 + static_cast<double>(i % 997); }

/// One operation of a set, from start to end; called on its members.
class Call {
 public:
  Call(DeviceUser& user, int rank, std::uint32_t set, std::vector<int> ranks, OperationKind kind)
      : user_(&user), rank_(rank), ranks_(std::move(ranks)), kind_(kind) {
    const std::size_t input = kind == OperationKind::kReduceScatter ? kPart * size() : kPart;
    input_ = user.allocate(kType, input);
    user.fill(kType, input_, input, [=](std::size_t i) { return value_of(rank, i); });
    output_ = std::make_unique<std::byte*>(input_);
    const Shape shape = {static_cast<std::int64_t>(input)};
    call_ = on_device(user, kind, std::string(to_string(kind)), kType, input_, input_, shape);
    call_.process_set = set;
    call_.signature.root = ranks_.back();
    if (kind == OperationKind::kAllreduce || kind == OperationKind::kBroadcast) return;
    call_.output = nullptr;
    call_.allocate = [its_user = user_, output = output_.get()](const Shape& rows) {
      return *output = its_user->allocate(kType, static_cast<std::size_t>(rows.front()));
    };
  }

  void start(Runtime& runtime) { work_ = submit(runtime, std::move(call_)); }
  void expect_its_result() {
    const Status status = finish(*user_, *work_);
    ASSERT_TRUE(status.ok()) << to_string(kind_) << ": " << status.error().message;
    const std::vector<double> expected = result();
    ASSERT_EQ(user_->read(kType, *output_, expected.size()), expected) << to_string(kind_);
  }

 private:
  std::size_t size() const { return ranks_.size(); }
  std::vector<double> result() const {
    std::vector<double> values;
    const auto append = [&](auto&& value, std::size_t begin) {
      for (std::size_t i = 0; i < kPart; ++i) values.push_back(value(begin + i));
    };
    const auto sum = [&](std::size_t i) {
      return std::accumulate(ranks_.begin(), ranks_.end(), 0.0,
                             [i](double before, int rank) { return before + value_of(rank, i); });
    };
    const auto of = [](int rank) { return std::bind_front(value_of, rank); };
    const auto own = std::find(ranks_.begin(), ranks_.end(), rank_) - ranks_.begin();
    if (kind_ == OperationKind::kAllreduce) append(sum, 0);
    if (kind_ == OperationKind::kReduceScatter) append(sum, static_cast<std::size_t>(own) * kPart);
    if (kind_ == OperationKind::kBroadcast) append(of(ranks_.back()), 0);
    if (kind_ == OperationKind::kAllgather)
      for (const int rank : ranks_) append(of(rank), 0);
    return values;
  }

  DeviceUser* user_;
  int rank_;
  std::vector<int> ranks_;
  OperationKind kind_;
  std::byte* input_ = nullptr;
  std::unique_ptr<std::byte*> output_;  ///< where its allocator finds it, too
  Submission call_;
  std::shared_ptr<Work> work_;
};

std::vector<Place> places_of_several_sets() {
  std::vector<Place> places = kPlaces;
  std::erase_if(places, [](const Place& place) { return place.hosts.size() < 4; });
  return places;
}

class DeviceSetHosts : public testing::TestWithParam<Place> {
 protected:
  int size() const { return static_cast<int>(GetParam().hosts.size()); }
  DeviceSet devices_;
};
INSTANTIATE_TEST_SUITE_P(Places, DeviceSetHosts, testing::ValuesIn(places_of_several_sets()),
                         [](const auto& place) { return std::string(place.param.name); });

TEST_P(DeviceSetHosts, RunAtOnceAndPassTheirOwnWindowsInsideAHost) {
  const Place& place = GetParam();
  std::vector<std::vector<int>> sets(3);
  for (int rank = 0; rank < size(); ++rank) sets[0].push_back(rank);
  sets[1] = {sets[0].begin() + 1, sets[0].end()};
  sets[2] = {0, 1, size() - 1};
  std::atomic<bool> running = false;
  std::atomic<std::size_t> most_sent_inside = 0;
  std::barrier started(size());
  LocalWorldOptions options = options_of(place, kSanitized ? "4K" : "16K", devices_);
  options.process_sets = {sets.begin() + 1, sets.end()};
  decorate(options, [&](int rank, const FaultyCall& call) {
    const bool inside = place.hosts[static_cast<std::size_t>(rank)] ==
                        place.hosts[static_cast<std::size_t>(call.peer)];
    if (running && inside && call.kind == FaultyCall::Kind::kSend && call.length > most_sent_inside)
      most_sent_inside = call.length;
    return Fault::kNone;
  });
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        started.arrive_and_wait();  // the links are measured
        running = true;
        DeviceUser user(runtime);
        for (int round = 0; round < 3; ++round) {
          std::vector<Call> calls;
          for (std::uint32_t set = 0; set < sets.size(); ++set)
            for (const OperationKind kind : kKinds)
              if (std::find(sets[set].begin(), sets[set].end(), rank) != sets[set].end())
                calls.emplace_back(user, rank, set, sets[set], kind);
          if (rank % 2 == 1) std::reverse(calls.begin(), calls.end());
          for (Call& call : calls) call.start(runtime);
          for (Call& call : calls) call.expect_its_result();
        }
      },
      options);
  if (place.maps) {
    EXPECT_LT(most_sent_inside, 256U);  // signals
  }
}

}  // namespace
}  // namespace kolo::test::device_set_hosts_test
