// What fails while a checkpoint is saved, and who hears of it. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace {

namespace fs = std::filesystem;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// A name that all ranks have, and nothing has yet.
fs::path unused_name() {
  const auto name = "kolo_failures_" + std::to_string(getpid());
  return kolo::broadcast_object((fs::temp_directory_path() / name).string(), 0);
}

/// Rank 0 cannot write what only the others have, and knows of it from them alone.
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

}  // namespace
