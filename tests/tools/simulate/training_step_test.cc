// Training steps: what is read from a timeline, and what of their communication is exposed.
#include "tools/simulate/training_step.h"

#include "tests/support/trace_file.h"
#include "tools/simulate/collective.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace kolo::simulate {
namespace {

using ::testing::HasSubstr;

/// An all-reduce that is submitted, as a timeline has it.
std::string call(double at_us, const std::string& name, std::uint64_t bytes) {
  return fmt::format(R"({{"ph":"X","cat":"tensor","name":"allreduce","ts":{},"dur":9,)"
                     R"("args":{{"tensor":"{}","bytes":{},"type":"float32","process_set":0}}}},)",
                     at_us, name, bytes);
}
std::string wait(double at_us, double us) {
  return fmt::format(R"({{"ph":"X","cat":"wait","name":"wait","ts":{},"dur":{}}},)", at_us, us);
}

Result<Profile> profile_of(const std::string& events) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("trace.json");
  std::ofstream(path) << "[" << events << "{}]";
  return read_profile(path);
}

TEST(ReadProfile, TakesTheStepOfMedianLength) {
  std::string events = wait(1690, 20);  // into the step after
  // Steps of 300, 500 and 400 us between the first and the last, in any order within the file.
  for (const double begin : {100.0, 500.0, 800.0, 1300.0, 1700.0})
    events += call(begin + 20, "b", 8000) + call(begin, "a", 400) +
              call(begin + 25, "(ordered)", 8) + wait(begin + 50, 70);
  const auto profile = profile_of(events);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_DOUBLE_EQ(profile->compute_us, 400 - 70 - 10);
  ASSERT_EQ(profile->gradients.size(), 2u);
  EXPECT_DOUBLE_EQ(profile->gradients[0].ready_us, 0);
  EXPECT_EQ(profile->gradients[0].bytes, 400u);
  EXPECT_DOUBLE_EQ(profile->gradients[1].ready_us, 20);
  EXPECT_EQ(profile->gradients[1].bytes, 8000u);
}

TEST(ReadProfile, SaysWhatIsWrongWithTheFile) {
  const auto why = [](const Result<Profile>& profile) { return profile.error().message; };
  EXPECT_THAT(why(read_profile("/no/such/file")), HasSubstr("'/no/such/file' is no timeline"));
  EXPECT_THAT(why(profile_of("nonsense")), HasSubstr("parse error"));
  EXPECT_THAT(why(profile_of(call(0, "a", 4) + call(9, "a", 4))), HasSubstr("it has 2 steps"));
}

double allreduce_us(const Machine& machine, std::uint64_t bytes) {
  Call of{.bytes = bytes};
  of.algorithm = choice_of(machine, of);
  return time_of(machine, of)->us;
}

TEST(TrainingStep, ExposesWhatComesAfterTheLastGradient) {
  const Machine machine{.hosts = 8};
  const double us = agreement_us(machine) + allreduce_us(machine, 4 << 20);
  const auto alone = time_of(machine, Profile{.gradients = {{.bytes = 4 << 20}}});
  ASSERT_TRUE(alone.ok());
  EXPECT_DOUBLE_EQ(alone->exposed_us, us);
  // The first of two is over long before the second is ready.
  const Gradient late{.ready_us = 1e6, .bytes = 4 << 20};
  const auto two = time_of(machine, Profile{.gradients = {{.bytes = 4 << 20}, late}});
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->operations, 2u);
  EXPECT_NEAR(two->exposed_us, us, 1e-6);
  EXPECT_DOUBLE_EQ(two->communication_us, 2 * us);
}

TEST(TrainingStep, FusesWhatIsReadyTogether) {
  const Machine machine{.hosts = 4, .ranks_per_host = 2};
  const Gradient small{.bytes = 1000};
  const auto step = time_of(machine, Profile{.gradients = std::vector<Gradient>(10, small)});
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->operations, 1u);
  EXPECT_DOUBLE_EQ(step->exposed_us, agreement_us(machine) + allreduce_us(machine, 10'000));
}

TEST(TrainingStep, AgreementsGrowWithTheLogarithmOfTheRanks) {
  const auto us = [](int hosts) { return negotiation_us({.hosts = hosts}); };
  EXPECT_DOUBLE_EQ(us(2), 2 * (4 + 2 * 0.5));
  EXPECT_GT(us(256), us(16));
  EXPECT_LT(us(256), 3 * us(16));
  EXPECT_LT(us(32768), 100);
  for (const int hosts : {2, 17, 256, 32768})
    EXPECT_LT(agreement_us({.hosts = hosts}), 0.7 * us(hosts)) << "one way, not up and down";
}

}  // namespace
}  // namespace kolo::simulate
