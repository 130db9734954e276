// kolo-perf's command line: refusals.
#include "tools/perf/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo::perf::options_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::optional<Options> parsed(std::vector<std::string> arguments, int& exit_code) {
  arguments.insert(arguments.begin(), "kolo-perf");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse(static_cast<int>(argv.size()), argv.data(), &exit_code);
}

TEST(Options, AStepRefusesWhatOnlyASweepTakes) {
  const std::vector<std::vector<std::string>> cases = {
      {"collective", "broadcast"},
      {"--minbytes", "-b", "8"},
      {"--maxbytes", "-e", "1M"},
      {"--stepfactor", "-f", "4"},
      {"--stepbytes", "-i", "8"},
      {"--datatype", "-d", "int8"},
      {"--op", "-o", "max"},
      {"--root", "-r", "0"},
      {"--submission", "--submission", "negotiated"},
      {"--agg_iters", "-m", "2"},
      {"--check", "-c", "0"},
      {"--rewrite", "--rewrite", "0"},
      {"--protocol", "--protocol", "harness"},
      {"--limit", "--limit"},
      {"--percentiles", "-P"},
      {"--far-above", "--far-above", "0"}};
  for (const std::vector<std::string>& option : cases) {
    std::vector<std::string> arguments(option.begin() + 1, option.end());
    arguments.emplace_back("--step");
    int exit_code = 0;
    testing::internal::CaptureStderr();
    const auto options = parsed(arguments, exit_code);
    const std::string message = testing::internal::GetCapturedStderr();
    EXPECT_FALSE(options.has_value()) << option.front();
    EXPECT_NE(exit_code, 0) << option.front();
    EXPECT_THAT(message, HasSubstr(option.front() + " excludes --step\n"));
  }
}

TEST(Options, AnAuditIsOfAllReducesByKolo) {
  const std::vector<std::vector<std::string>> cases = {{"collective", "broadcast"},
                                                       {"--datatype", "-d", "int8"},
                                                       {"--compare", "--compare", "mpi"},
                                                       {"--device", "--device", "cuda"},
                                                       {"--step", "--step"}};
  for (const std::vector<std::string>& option : cases) {
    std::vector<std::string> arguments(option.begin() + 1, option.end());
    arguments.emplace_back("--audit");
    int exit_code = 0;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(parsed(arguments, exit_code).has_value()) << option.front();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--audit"));
    EXPECT_EQ(exit_code, 2) << option.front();
  }
  int exit_code = 0;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(parsed({"--within", "2"}, exit_code).has_value());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--within requires --audit\n"));
  EXPECT_EQ(parsed({"--audit"}, exit_code)->sweep.min_bytes, 4U);
  EXPECT_EQ(parsed({"--audit"}, exit_code)->memories.size(), 2U);
  EXPECT_EQ(parsed({"--audit", "--memory", "shared"}, exit_code)->memories,
            std::vector{Memory::kShared});
}

TEST(Options, AStepTakesItsOwn) {
  int exit_code = 0;
  const auto options = parsed({"-n", "2", "-w", "1", "-T", "9", "-J", "report", "--memory",
                               "shared", "--device", "host", "--compare", "mpi", "--step", "small"},
                              exit_code);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->step, "small");
  EXPECT_EQ(options->sweep.series.iterations, 2);
}

TEST(Options, WhatIsRefusedIsQuotedInOneLine) {
  const std::vector<std::vector<std::string>> cases = {
      {"'99999999999999G' is no size from 0 to 1P", "--maxbytes", "99999999999999G"},
      {"'18446744073709551616' is no size from 0 to 1P", "--stepbytes", "18446744073709551616"},
      {"'0' is no size from 1 to 1P", "--minbytes", "0"},
      {"'-1' is no size", "--minbytes", "-1"},
      {"'1.5K' is no size", "--minbytes", "1.5K"},
      {"'8X' is no size", "--maxbytes", "8X"},
      {"'' is no size", "--maxbytes", ""},
      {"'nan' is no number from 1.01 to 1e+06", "--stepfactor", "nan"},
      {"'1' is no number from 1.01", "--stepfactor", "1"},
      {"'2x' is no number from 1.01", "--stepfactor", "2x"},
      {"'-1' is no number from 0 to 1e+09", "--far-above", "-1"},
      {"'inf' is no number from 0", "--far-above", "inf"},
      {"Value -1 not in range 0 to 2147483647", "--root", "-1"},
      {"Value 99999999999 not in range 0 to", "--root", "99999999999"},
      {"Value 1.5 not in range 0 to", "--root", "1.5"},
      {"Value -5 not in range 0 to 31536000", "--timeout", "-5"},
      {"'' is no file", "--json", ""},
      {"--compare: 'mpi' is named twice", "--compare", "mpi,gloo,mpi"}};
  for (const std::vector<std::string>& option : cases) {
    int exit_code = 0;
    testing::internal::CaptureStderr();
    const auto options = parsed({option.begin() + 1, option.end()}, exit_code);
    const std::string message = testing::internal::GetCapturedStderr();
    EXPECT_FALSE(options.has_value()) << option.front();
    EXPECT_EQ(exit_code, 2) << option.front();
    EXPECT_THAT(message, AllOf(HasSubstr(option.front()), HasSubstr(option[1])));
    EXPECT_LT(message.find('\n'), 200U) << message;
  }
}

TEST(Options, SizesHaveUnits) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"8", 8},        {"8B", 8},       {"2K", 2048},      {"2kb", 2048},     {"2 KiB", 2048},
      {"3M", 3 << 20}, {"1G", 1 << 30}, {"2T", 2UL << 40}, {"1P", 1UL << 50}, {"1024T", 1UL << 50}};
  for (const auto& [text, bytes] : cases) {
    int exit_code = 0;
    const auto options = parsed({"-e", text}, exit_code);
    ASSERT_TRUE(options.has_value()) << text;
    EXPECT_EQ(options->sweep.max_bytes, bytes) << text;
  }
}

}  // namespace
}  // namespace kolo::perf::options_test
