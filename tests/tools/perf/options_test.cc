// kolo-perf's command line: what it refuses.
#include "tools/perf/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo::perf {
namespace {

using testing::HasSubstr;

std::optional<Options> parsed(std::vector<std::string> arguments, int& exit_code) {
  arguments.insert(arguments.begin(), "kolo-perf");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse(static_cast<int>(argv.size()), argv.data(), &exit_code);
}

TEST(Options, AStepRefusesWhatOnlyASweepTakes) {
  const std::vector<std::vector<std::string>> cases = {
      {"collective", "broadcast"}, {"--minbytes", "-b", "8"},  {"--maxbytes", "-e", "1M"},
      {"--stepfactor", "-f", "4"}, {"--stepbytes", "-i", "8"}, {"--datatype", "-d", "int8"},
      {"--op", "-o", "max"},       {"--root", "-r", "0"},      {"--door", "--door", "named"},
      {"--agg_iters", "-m", "2"},  {"--check", "-c", "0"},     {"--rewrite", "--rewrite", "0"},
      {"--limit", "--limit"},      {"--percentiles", "-P"},    {"--far-above", "--far-above", "0"}};
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

TEST(Options, AStepTakesItsOwn) {
  int exit_code = 0;
  const auto options = parsed({"-n", "2", "-w", "1", "-T", "9", "-J", "report", "--memory",
                               "shared", "--device", "host", "--compare", "mpi", "--step", "small"},
                              exit_code);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->step, "small");
  EXPECT_EQ(options->sweep.series.iterations, 2);
}

}  // namespace
}  // namespace kolo::perf
