// Settings files, and the Accelerator's configuration from files and flags. Local.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace {

using kolo::AcceleratorConfig;
using kolo::Settings;
using kolo::test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file as `accelerate config` writes it.
constexpr const char* kAccelerates = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
machine_rank: 1
main_process_ip: 10.0.0.7
main_process_port: 29500
main_training_function: main
mixed_precision: bf16   # a comment
num_machines: 2
num_processes: 4
deepspeed_config:
  zero_stage: 1
  offload: none
use_cpu: true
tpu_env: null
)";

TEST(Settings, ReadsScalarsQuotesAndMaps) {
  const auto settings = Settings::from_text(R"(---
lr: 1e-3
epochs: 5
name: "a: b # c"
'odd key': it's
optimizer:
  betas: 0.9
  inner:
      deep: yes
after: off
nothing: ~
tpu_env: []
deepspeed_config: { }
plain: it's  # a comment
quoted: 'it''s # none'
)",
                                            "hyper.yaml");
  EXPECT_DOUBLE_EQ(settings.get<double>("lr"), 1e-3);
  EXPECT_EQ(settings.get<int>("epochs"), 5);
  EXPECT_DOUBLE_EQ(settings.get<double>("epochs"), 5);
  EXPECT_EQ(settings.get<std::string>("name"), "a: b # c");
  EXPECT_DOUBLE_EQ(settings.get<double>("optimizer.betas"), 0.9);
  EXPECT_TRUE(settings.get<bool>("optimizer.inner.deep"));
  EXPECT_FALSE(settings.get<bool>("after"));
  EXPECT_FALSE(settings.has("nothing"));
  EXPECT_EQ(settings.get("nothing", 7), 7);
  EXPECT_FALSE(settings.has("tpu_env"));
  EXPECT_FALSE(settings.has("deepspeed_config"));
  EXPECT_EQ(settings.get<std::string>("plain"), "it's");
  EXPECT_EQ(settings.get<std::string>("quoted"), "it's # none");
  EXPECT_EQ(settings.items().size(), 9U);
}

TEST(Settings, ErrorsNameFileLineKeyAndValue) {
  const auto error_of = [](const std::string& text) {
    return message_of([&] { Settings::from_text(text, "h.yaml"); });
  };
  EXPECT_THAT(error_of("a: 1\n- b\n"), HasSubstr("h.yaml, line 2: this is a list"));
  EXPECT_THAT(error_of("a:\n  b:\n    - c\n"), HasSubstr("line 3: 'a.b' is a list"));
  EXPECT_THAT(error_of("a:\n- c\n"), HasSubstr("line 2: 'a' is a list"));
  EXPECT_THAT(error_of("a:\n  b: [0.9, 0.999]\n"), HasSubstr("line 2: 'a.b' is a list"));
  EXPECT_THAT(error_of("a: {b: 1}\n"), HasSubstr("'a' is a map in braces"));
  EXPECT_THAT(error_of("a: |\n  b\n"), HasSubstr("line 1: 'a' is text of several lines"));
  EXPECT_THAT(error_of("a: *b\n"), HasSubstr("'a' is an anchor or an alias"));
  EXPECT_THAT(error_of("a: \"b\\n\"\n"), HasSubstr("backslashes"));
  EXPECT_THAT(error_of("a: 'b'c'\n"), HasSubstr("a quote is not closed"));
  EXPECT_THAT(error_of("a: 1\n---\nb: 2\n"), HasSubstr("line 2: a second document"));
  EXPECT_THAT(error_of("a: 1\n   b: 2\n"), HasSubstr("line 2: its indentation"));
  EXPECT_THAT(error_of("a\n"), HasSubstr("'a' is no 'key: value'"));
  EXPECT_THAT(error_of("a: 1\na: 2\n"), HasSubstr("'a' is there twice"));
  EXPECT_THAT(error_of("a: 'b\n"), HasSubstr("a quote is not closed"));
  EXPECT_THAT(error_of("a:\n\tb: 1\n"), HasSubstr("a tab"));
  const auto settings = Settings::from_text("lr: fast\nn: 3.5\nbig: 3000000000", "h.yaml");
  EXPECT_THAT(message_of([&] { settings.get<double>("lr"); }),
              HasSubstr("h.yaml: 'lr' is 'fast', not a number"));
  EXPECT_THAT(message_of([&] { settings.get<int>("n"); }), HasSubstr("'3.5', not a whole number"));
  EXPECT_THAT(message_of([&] { settings.get<int>("big"); }), HasSubstr("in the range of its type"));
  EXPECT_THAT(message_of([&] { settings.get<bool>("lr"); }), HasSubstr("true or false"));
  EXPECT_THAT(message_of([&] { settings.get<int>("m"); }), HasSubstr("'m' is missing"));
  EXPECT_THAT(message_of([] { Settings::from_file("/nowhere/h.yaml"); }),
              HasSubstr("/nowhere/h.yaml"));
}

TEST(AcceleratorConfig, TakesAcceleratesFile) {
  const auto config = AcceleratorConfig::from_settings(Settings::from_text(kAccelerates, "c"));
  EXPECT_EQ(config.distributed_type, "MULTI_CPU");
  EXPECT_EQ(config.machine_rank, 1);
  EXPECT_EQ(config.main_process_ip, "10.0.0.7");
  EXPECT_EQ(config.main_process_port, 29500);
  EXPECT_EQ(config.mixed_precision, "bf16");
  EXPECT_EQ(config.num_machines, 2);
  EXPECT_EQ(config.num_processes, 4);
  EXPECT_TRUE(config.use_cpu);
  EXPECT_THAT(config.warnings,
              ElementsAre(HasSubstr("'compute_environment'"), HasSubstr("'debug'"),
                          HasSubstr("'downcast_bf16'"), HasSubstr("'main_training_function'"),
                          HasSubstr("'deepspeed_config'")));
  EXPECT_EQ(AcceleratorConfig::from_settings({}).mixed_precision, "no");
}

TEST(AcceleratorConfig, FlagsOverruleTheFileAndLeaveOthersAlone) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("kolo_config_" + std::to_string(getpid()) + ".yaml");
  std::ofstream(path) << "mixed_precision: bf16\nnum_processes: 4\nodd: 1\n";
  const std::string file = "--config_file=" + path.string();
  const char* arguments[] = {"program",  "--epochs",   "3",     "--num-processes",
                             "2",        file.c_str(), "--cpu", "--gradient_accumulation_steps=8",
                             "--verbose"};
  const auto config = AcceleratorConfig::from_flags(std::size(arguments), arguments);
  std::filesystem::remove(path);
  EXPECT_EQ(config.mixed_precision, "bf16");
  EXPECT_EQ(config.num_processes, 2);
  EXPECT_TRUE(config.use_cpu);
  EXPECT_EQ(config.gradient_accumulation_steps, 8);
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr(path.string() + ": the setting 'odd'")));
}

TEST(AcceleratorConfig, TakesWhatTheLauncherSays) {
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  setenv("ACCELERATE_USE_CPU", "true", 1);
  setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", 1);
  const char* const arguments[] = {"program", "--mixed_precision", "no"};
  const auto said = AcceleratorConfig::from_flags(1, arguments);
  const auto overruled = AcceleratorConfig::from_flags(3, arguments);
  unsetenv("ACCELERATE_MIXED_PRECISION");
  unsetenv("ACCELERATE_USE_CPU");
  unsetenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  EXPECT_EQ(said.mixed_precision, "bf16");
  EXPECT_TRUE(said.use_cpu);
  EXPECT_EQ(said.gradient_accumulation_steps, 4);
  EXPECT_EQ(overruled.mixed_precision, "no");
  EXPECT_TRUE(overruled.use_cpu);
  EXPECT_EQ(AcceleratorConfig::from_environment().mixed_precision, "no");
}

TEST(AcceleratorConfig, TakesItsFlagsOut) {
  std::vector<std::string> words{"program",           "--cpu", "--lr", "1",
                                 "--mixed_precision", "fp16",  "--x"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int count = 7;
  const auto config = AcceleratorConfig::take_flags(count, arguments.data());
  EXPECT_EQ(config.mixed_precision, "fp16");
  EXPECT_EQ(std::vector<std::string>(arguments.begin(), arguments.begin() + count),
            (std::vector<std::string>{"program", "--lr", "1", "--x"}));
  EXPECT_EQ(arguments[4], nullptr);
}

TEST(AcceleratorConfig, FlagsThatDoNotParse) {
  const auto error_of = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return message_of([&] {
      AcceleratorConfig::from_flags(static_cast<int>(arguments.size()), arguments.data());
    });
  };
  EXPECT_THAT(error_of({"--num_processes", "two"}),
              HasSubstr("the command line: 'num_processes' is 'two', not a whole number"));
  EXPECT_THAT(error_of({"--mixed_precision"}),
              HasSubstr("--mixed_precision: its value is missing"));
  EXPECT_THAT(error_of({"--config_file", "/nowhere.yaml"}), HasSubstr("/nowhere.yaml"));
  EXPECT_EQ(error_of({"--something"}), "(no error)");
}

}  // namespace
