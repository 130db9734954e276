// Failures while a checkpoint is saved, and which ranks are told. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace {

namespace fs = std::filesystem;
using kolo::test::message_of;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Optional;

constexpr const char* kFolder = "kolo_failures_";

/// A name that all ranks know, and that no file has yet.
fs::path unused_name() {
  const auto name = kFolder + std::to_string(getpid());
  return kolo::broadcast_object((fs::temp_directory_path() / name).string(), 0);
}

/// Rank 0 cannot write a state that only the others have, and learns of it from them alone.
TEST(CheckpointFailures, AStateThatRankZeroDoesNotShareIsToldToAll) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 and 3";
  const fs::path path = unused_name();
  const kolo::ProcessSet set = kolo::add_process_set({1});
  torch::nn::Linear model(3, 2);
  kolo::save_checkpoint(path, {.module = model.get()}, 1);
  const auto save = [&](torch::optim::Optimizer& optimizer) {
    const kolo::CheckpointParts parts = {.module = model.get(), .optimizer = &optimizer};
    return message_of([&] { kolo::save_checkpoint(path, parts, 2); });
  };
  torch::optim::Adam plain(model->parameters(), 0.1);
  std::string message;
  if (set.rank() >= 0) {
    kolo::ShardedOptimizer sharded(torch::optim::Adam(model->parameters(), 0.1),
                                   model->named_parameters(), {.process_set = set});
    message = save(sharded);
  } else {
    message = save(plain);
  }
  EXPECT_THAT(message, AllOf(HasSubstr("rank 1: checkpoint " + path.string()),
                             HasSubstr("rank 0 cannot have the whole state")));
  EXPECT_EQ(kolo::load_checkpoint(path, {.module = model.get()}), 1) << "the older one";
  kolo::remove_process_set(set);
  if (kolo::rank() == 0) fs::remove(path);
}

TEST(CheckpointFailures, APartThatOneRankLacksIsToldToAll) {
  const fs::path path = unused_name();
  const int last = kolo::size() - 1;
  const bool is_last = kolo::rank() == last;
  torch::nn::Linear model(3, 2), average(3, 2);
  kolo::ShardedOptimizer sharded(torch::optim::Adam(model->parameters(), 0.1),
                                 model->named_parameters());
  const kolo::CheckpointParts of_modules = {
      .module = model.get(), .modules = {{"average", is_last ? nullptr : average.get()}}};
  const kolo::CheckpointParts of_optimizers = {
      .module = model.get(), .optimizers = {{"own", is_last ? nullptr : &sharded}}};
  const auto told = [&](const std::string& part) {
    return AllOf(HasSubstr("rank " + std::to_string(last) + ": checkpoint " + path.string()),
                 HasSubstr(part + " is a null pointer"));
  };
  EXPECT_THAT(message_of([&] { kolo::save_checkpoint(path, of_modules, 1); }),
              told("module 'average'"));
  EXPECT_THAT(message_of([&] { kolo::save_checkpoint(path, of_optimizers, 1); }),
              told("optimizer 'own'"));
  if (kolo::rank() == 0) {
    EXPECT_FALSE(fs::exists(path));
  }
  kolo::save_checkpoint(path, {.module = model.get()}, 1);
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, of_modules); }),
              told("module 'average'"));
  EXPECT_EQ(kolo::load_checkpoint(path, {.module = model.get()}), 1) << "they go on together";
  if (kolo::rank() == 0) fs::remove(path);
}

constexpr const char* kLast = "last.pt";

/// Starts this program again in `folder`, as one of two ranks for CheckpointEnd, whose tests end
/// their world.
pid_t start_again(int rank, const fs::path& folder) {
  const std::string number = std::to_string(rank);
  const std::string meeting = "file://" + (folder / "ranks").string();
  const pid_t child = fork();
  if (child != 0) return child;
  fs::current_path(folder);
  setenv("KOLO_INIT_METHOD", meeting.c_str(), 1);
  setenv("KOLO_INIT_TIMEOUT", "30", 1);
  setenv("KOLO_RANK", number.c_str(), 1);
  setenv("KOLO_LOCAL_RANK", number.c_str(), 1);
  setenv("KOLO_SIZE", "2", 1);
  execl("/proc/self/exe", "rank", "--gtest_also_run_disabled_tests",
        "--gtest_filter=CheckpointEnd.*", nullptr);
  _exit(127);
}

std::optional<kolo::ErrorCode> code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const kolo::Exception& error) {
    return error.code();
  }
  return std::nullopt;
}

TEST(CheckpointFailures, AfterALostPeerRankZeroSavesWhatItHas) {
  const fs::path folder = unused_name();
  if (kolo::rank() == 0) {
    fs::create_directory(folder);
    const pid_t first = start_again(0, folder);
    const pid_t dying = start_again(1, folder);
    int status = -1;
    ASSERT_EQ(waitpid(dying, &status, 0), dying);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    ASSERT_EQ(waitpid(first, &status, 0), first);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  torch::nn::Linear model(3, 2);
  EXPECT_EQ(kolo::load_checkpoint(folder / kLast, {.module = model.get()}), 2);
  if (kolo::rank() == 0) fs::remove_all(folder);
}

TEST(CheckpointEnd, DISABLED_OneOfTwoRanksDies) {
  if (!fs::current_path().filename().string().starts_with(kFolder))
    GTEST_SKIP() << "AfterALostPeerRankZeroSavesWhatItHas starts it";
  alarm(60);  // a hang ends by itself
  torch::nn::Linear model(3, 2);
  torch::optim::Adam adam(model->parameters(), 0.1);
  const kolo::CheckpointParts parts = {.module = model.get(), .optimizer = &adam};
  kolo::save_checkpoint(kLast, parts, 1);
  const torch::Tensor word = torch::zeros({1});
  if (kolo::rank() == 1) {
    kolo::recv_(word, 0);  // rank 0 has its part of the first checkpoint
    std::raise(SIGKILL);
  }
  using enum kolo::ErrorCode;
  const auto is_over = Optional(AnyOf(kPeerLost, kTransport, kAborted));
  EXPECT_THAT(code_of([&] {
                kolo::send(word, 1);
                while (true) kolo::barrier();
              }),
              is_over);
  const char* const whole = "whole.pt";
  kolo::CheckpointParts of_all = parts;
  of_all.generators = true;
  EXPECT_THAT(code_of([&] { kolo::save_checkpoint(whole, of_all, 2); }), is_over);
  EXPECT_FALSE(fs::exists(whole)) << "the other one's generator is lost";
  EXPECT_THAT(code_of([&] { kolo::save_checkpoint(kLast, parts, 2); }), is_over);
}

}  // namespace
