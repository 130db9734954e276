// The table of knobs: parsing, ranges, warnings and reports.
#include "runtime/base/environment.h"

#include <kolo/config.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace kolo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Result<Config> config_of(Environment::Variables variables) {
  return Config::from_environment(Environment(std::move(variables)));
}

std::string refusal(const std::string& name, const std::string& value) {
  const auto config = config_of({{name, value}});
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
  return config.error().message;
}

TEST(Environment, ReadsThisProcess) {
  ASSERT_EQ(::setenv("KOLO_TEST_VARIABLE", "a=b", 1), 0);
  EXPECT_EQ(Environment::of_process().get("KOLO_TEST_VARIABLE"), "a=b");
  ::unsetenv("KOLO_TEST_VARIABLE");
  EXPECT_EQ(Environment::of_process().get("KOLO_TEST_VARIABLE"), std::nullopt);
}

TEST(Environment, EmptyIsUnsetAndOnlyWholeNumbersAreNumbers) {
  const Environment environment(Environment::Variables{
      {"EMPTY", ""}, {"FOUR", "4"}, {"NEGATIVE", "-4"}, {"MORE", "4x"}, {"HUGE", "99999999999"}});
  EXPECT_EQ(environment.get("EMPTY"), std::nullopt);
  EXPECT_EQ(environment.get_int("FOUR"), 4);
  for (const char* name : {"EMPTY", "NEGATIVE", "MORE", "HUGE", "ABSENT"}) {
    EXPECT_EQ(environment.get_int(name), std::nullopt) << name;
  }
}

TEST(Config, NothingSetGivesTheDefaults) {
  const auto config = config_of({{"HOME", "/root"}, {"KOLO_LOG_LEVEL", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->log_level, "warning");
  EXPECT_EQ(config->chunk_size, 256 << 10);
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST(Config, TakesEveryKnobAtItsDefault) {
  for (const Knob& knob : knobs()) {
    const auto config = config_of({{knob.name, knob.default_value}});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_THAT(config->warnings, IsEmpty());
    EXPECT_FALSE(knob.purpose.empty() || knob.range.empty() || knob.unit.empty()) << knob.name;
  }
}

TEST(Config, EachKnobSetsItsOwnField) {
  const auto config = config_of({{"KOLO_LOG_LEVEL", "debug"},
                                 {"KOLO_INIT_METHOD", "single://"},
                                 {"KOLO_RANK", "2"},
                                 {"KOLO_SIZE", "4"},
                                 {"KOLO_LOCAL_RANK", "1"},
                                 {"KOLO_SECRET", "x"},
                                 {"KOLO_HOST_ID", "left"},
                                 {"KOLO_INIT_TIMEOUT", "11"},
                                 {"KOLO_OPERATION_TIMEOUT", "12"},
                                 {"KOLO_HEARTBEAT_TIMEOUT", "14"},
                                 {"KOLO_STALL_WARNING", "13"},
                                 {"KOLO_FUSION_THRESHOLD", "14"},
                                 {"KOLO_FUSION_MAX_TENSOR", "15"},
                                 {"KOLO_CHUNK_SIZE", "1600"},
                                 {"KOLO_CHUNKS_IN_FLIGHT", "17"},
                                 {"KOLO_BATCH_WINDOW", "18"},
                                 {"KOLO_BATCH_SIZE", "19"},
                                 {"KOLO_CACHE_CAPACITY", "20"},
                                 {"KOLO_CONTROL_DEGREE", "21"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->log_level, "debug");
  EXPECT_EQ(config->init_method, "single://");
  EXPECT_EQ(config->rank, 2);
  EXPECT_EQ(config->size, 4);
  EXPECT_EQ(config->local_rank, 1);
  EXPECT_EQ(config->secret, "x");
  EXPECT_EQ(config->host_id, "left");
  EXPECT_EQ(config->init_timeout_s, 11);
  EXPECT_EQ(config->operation_timeout_s, 12);
  EXPECT_EQ(config->heartbeat_timeout_s, 14);
  EXPECT_EQ(config->stall_warning_s, 13);
  EXPECT_EQ(config->fusion_threshold, 14);
  EXPECT_EQ(config->fusion_max_tensor, 15);
  EXPECT_EQ(config->chunk_size, 1600);
  EXPECT_EQ(config->chunks_in_flight, 17);
  EXPECT_EQ(config->batch_window_us, 18);
  EXPECT_EQ(config->batch_size, 19);
  EXPECT_EQ(config->cache_capacity, 20);
  EXPECT_EQ(config->control_degree, 21);
}

TEST(Config, BytesTakeSuffixesAndOtherUnitsDoNot) {
  EXPECT_EQ(config_of({{"KOLO_CHUNK_SIZE", "4K"}})->chunk_size, 4096);
  EXPECT_EQ(config_of({{"KOLO_CHUNK_SIZE", "2m"}})->chunk_size, 2 << 20);
  EXPECT_EQ(config_of({{"KOLO_CHUNK_SIZE", "1G"}})->chunk_size, 1 << 30);
  EXPECT_THAT(refusal("KOLO_INIT_TIMEOUT", "1K"), HasSubstr("KOLO_INIT_TIMEOUT='1K'"));
}

TEST(Config, RefusesWhatDoesNotParseOrIsOutOfRange) {
  for (const char* value : {"x", "4Q", "4KK", "K", "-4K", "0x10", " 4K", "4.5K", "1023", "1025M",
                            "2G", "99999999999999999999", "9007199254740992G"}) {
    EXPECT_THAT(refusal("KOLO_CHUNK_SIZE", value),
                AllOf(HasSubstr("KOLO_CHUNK_SIZE='" + std::string(value) + "'"), HasSubstr("bytes"),
                      HasSubstr("1024 to 1073741824"), HasSubstr("262144")));
  }
  EXPECT_THAT(refusal("KOLO_LOG_LEVEL", "loud"),
              AllOf(HasSubstr("KOLO_LOG_LEVEL='loud'"), HasSubstr("trace, debug, info, warning")));
  EXPECT_THAT(refusal("KOLO_RANK", "-1"), HasSubstr("0 to"));
  EXPECT_THAT(refusal("KOLO_CHUNKS_IN_FLIGHT", "65"), HasSubstr("1 to 64"));
}

TEST(Config, AnUnknownVariableIsAWarningThatGuesses) {
  const auto config =
      config_of({{"KOLO_CHUNKSIZE", "4K"}, {"KOLO_ENTIRELY_DIFFERENT", "1"}, {"OTHER", "1"}});
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->warnings,
              ElementsAre(AllOf(HasSubstr("KOLO_CHUNKSIZE "), HasSubstr("mean KOLO_CHUNK_SIZE?")),
                          AllOf(HasSubstr("KOLO_ENTIRELY_DIFFERENT"), Not(HasSubstr("mean")))));
}

TEST(Config, AgreedSettingsChangeWithTheKnobsThatRanksMustShare) {
  const auto base = Config().agreed_settings();
  EXPECT_THAT(base, testing::Contains("KOLO_CHUNK_SIZE=262144"));
  EXPECT_NE(config_of({{"KOLO_CHUNK_SIZE", "4K"}})->agreed_settings(), base);
  EXPECT_NE(config_of({{"KOLO_CACHE_CAPACITY", "0"}})->agreed_settings(), base);
  EXPECT_EQ(config_of({{"KOLO_LOG_LEVEL", "debug"}, {"KOLO_HOST_ID", "b"}})->agreed_settings(),
            base);
}

TEST(Knobs, NamesAreUniqueAndPrefixed) {
  std::set<std::string> names;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(knob.name.starts_with("KOLO_")) << knob.name;
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
  }
}

}  // namespace
}  // namespace kolo
