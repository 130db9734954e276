// kolo-perf's step, in a world of one rank: errors of its peers are found.
#include "tools/perf/step.h"

#include <kolo/kolo.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace kolo::perf::step_test {
namespace {

/// Number of floats of `small`.
constexpr std::int64_t kFloats = 4000;

/// An in-place all-reduce of one rank has nothing to do; this one does something wrong instead.
class FaultyPeer final : public Engine {
 public:
  explicit FaultyPeer(std::function<void(float*)> fault) : fault_(std::move(fault)) {}

  std::string_view name() const override { return "faulty"; }
  bool supports(const Problem& /*problem*/, bool /*in_place*/) const override { return true; }
  void prepare(const Problem& problem) override { EXPECT_EQ(problem.count, kFloats); }
  void run(const Problem& /*problem*/, const std::byte* /*input*/, std::byte* output,
           bool /*in_place*/) override {
    fault_(reinterpret_cast<float*>(output));
  }

 private:
  const std::function<void(float*)> fault_;
};

class StepTest : public testing::Test {
 protected:
  void SetUp() override { init({.init_method = "single://"}); }
  void TearDown() override { shutdown(); }

  /// Right peers run beside it; their results must not be taken for its own.
  static nlohmann::json report_of(std::function<void(float*)> fault) {
    std::vector<std::unique_ptr<Engine>> peers;
    peers.push_back(std::make_unique<FaultyPeer>([](float*) {}));
    peers.push_back(std::make_unique<FaultyPeer>(std::move(fault)));
    peers.push_back(std::make_unique<FaultyPeer>([](float*) {}));
    return run_step({.name = "small", .iterations = 3, .warmup = 0}, peers);
  }
  static void expect_wrong(const nlohmann::json& report, int elements) {
    EXPECT_EQ(report["wrong"], elements);
    EXPECT_EQ(report["peers"][0].at("wrong"), 0);
    EXPECT_EQ(report["peers"][1].at("wrong"), elements);
    EXPECT_EQ(report["peers"][2].at("wrong"), 0);
  }
};

TEST_F(StepTest, RightResultsAreRight) {
  expect_wrong(report_of([](float*) {}), 0);
}

TEST_F(StepTest, AWrongElementOfAPeerIsFoundEachTime) {
  expect_wrong(report_of([](float* floats) { floats[kFloats - 1] += 1; }), 3);
}

TEST_F(StepTest, ElementsInEachOthersPlacesAreFound) {
  expect_wrong(report_of([](float* floats) { std::swap(floats[0], floats[kFloats - 1]); }), 6);
  expect_wrong(report_of([](float* floats) { std::rotate(floats, floats + 4, floats + kFloats); }),
               3 * kFloats);
}

}  // namespace
}  // namespace kolo::perf::step_test
