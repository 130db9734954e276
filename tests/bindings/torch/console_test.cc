#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace {

using testing::HasSubstr;
using Mode = kolo::ProgressBarOptions::Mode;

std::string captured(const std::function<void()>& call) {
  testing::internal::CaptureStdout();
  call();
  return testing::internal::GetCapturedStdout();
}

TEST(Console, PrintsOnRank0Only) {
  EXPECT_EQ(kolo::speaks(), kolo::rank() == 0);
  EXPECT_EQ(captured([] { kolo::print("epoch ", 3, " loss ", 0.5); }),
            kolo::rank() == 0 ? "epoch 3 loss 0.5\n" : "");
  EXPECT_EQ(captured([] { kolo::force_print("rank ", kolo::rank()); }),
            "rank " + std::to_string(kolo::rank()) + "\n");
}

TEST(Console, TimesEpochs) {
  kolo::EpochTimer timer;
  const double first = timer.lap();
  EXPECT_EQ(timer.last(), first);
  EXPECT_GE(timer.total(), first);
  EXPECT_THAT(timer.line(7),
              testing::MatchesRegex("Epoch 7 took [0-9.]+ sec., total_time: [0-9.]+ sec."));
}

/// The output of a bar of ten steps after `use`.
std::string shown(Mode mode, const std::function<void(kolo::ProgressBar&)>& use) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  kolo::ProgressBar bar(10, {.mode = mode, .label = "train", .out = file.get(), .interval_s = 0});
  use(bar);
  std::string text(4096, '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

TEST(Console, TheBarMovesOnRank0) {
  const std::string text = shown(Mode::kMoves, [](auto& bar) {
    bar.update(5, "loss 1.5");
    bar.finish("loss 1.2");
  });
  if (kolo::rank() != 0) {
    EXPECT_EQ(text, "");
    return;
  }
  EXPECT_THAT(text, HasSubstr("\rtrain [############............] 5/10 loss 1.5"));
  EXPECT_THAT(text, HasSubstr("\rtrain [############............] 5/10 loss 1.2\033[K\n"));
}

TEST(Console, WithoutATerminalOnlyTheLastLine) {
  const std::string text = shown(Mode::kAuto, [](auto& bar) {
    bar.update(5);
    bar.finish();
  });
  EXPECT_EQ(text, kolo::rank() == 0 ? "train [############............] 5/10\n" : "");
}

}  // namespace
