// The flight recorder's file: what the ring holds, when the file stays, and what cannot be made.
#include "runtime/observe/flight_recorder.h"
#include "tests/support/in_child.h"
#include "tests/support/local_world.h"
#include "tests/support/trace_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::string_view kModes[] = {"negotiated", "in-order", "message"};

/// A copy of the file.
std::unique_ptr<flight::File> read(const std::string& path) {
  auto file = std::make_unique<flight::File>();
  std::ifstream(path).read(reinterpret_cast<char*>(file.get()), sizeof *file);
  return file;
}

class FlightRecorderTest : public testing::Test {
 protected:
  FlightOptions options(int rank = 0) const {
    return {.folder = folder_.path(""),
            .rank = rank,
            .size = 2,
            .local_rank = rank,
            .host = "node\"1",
            .pid = 17,
            .job = "abc",
            .init_method = "tcp://node1:4711",
            .modes = kModes};
  }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path("")))
      found.push_back(entry.path().filename());
    return found;
  }
  void open() { recorder_.open(options(), log_); }
  std::uint64_t announce_in_full(const std::string& name) {
    return recorder_.submitted({.name = name, .bytes = 8, .submitted = 5});
  }

  TemporaryFolder folder_;
  Log log_{"off"};
  FlightRecorder recorder_;
};

TEST_F(FlightRecorderTest, TheFileDescribesItself) {
  open();
  const std::string text = read(recorder_.path())->description.data();
  EXPECT_THAT(text, HasSubstr(R"("kolo_flight": 1, "rank": 0, "size": 2, "pid": 17)"));
  EXPECT_THAT(text,
              HasSubstr(R"("host": "node\"1", "job": "abc", "init_method": "tcp://node1:4711")"));
  EXPECT_THAT(text, HasSubstr(R"("ops": ["sum","average")"));
  EXPECT_THAT(text, HasSubstr(fmt::format(R"(, {}, 128])", flight::kTensors)));
}

TEST_F(FlightRecorderTest, ASlotIsOpenUntilAllRanksAgree) {
  open();
  recorder_.add_set(0, 2, 0);
  recorder_.add_set(7, 2, 1);
  recorder_.name(65, {.name = "fc1.weight", .bytes = 16, .process_set = 7});
  const std::vector<std::uint64_t> slots = {1, 6};
  recorder_.announced(7, 3, 50, slots);
  auto file = read(recorder_.path());
  EXPECT_EQ(file->names[0].slot, 65U);
  EXPECT_EQ(std::string(file->names[0].name.data(), file->names[0].name_bytes), "fc1.weight");
  EXPECT_EQ(file->announcements[0].step, 3U);
  EXPECT_EQ(file->announcements[0].words, 2U);
  EXPECT_EQ(file->steps[0].last, 50);
  EXPECT_EQ(file->sets[0].open[1], 0U);
  EXPECT_EQ(file->sets[1].open[1], 6U);
  recorder_.agreed(7, std::vector<std::uint64_t>{1, 2});
  EXPECT_EQ(read(recorder_.path())->sets[1].open[1], 4U);
  recorder_.settled(7, 66);
  EXPECT_EQ(read(recorder_.path())->sets[1].open[1], 0U);
}

TEST_F(FlightRecorderTest, MoreSlotsThanItRecordsArePassedOver) {
  open();
  recorder_.add_set(0, 2, 0);
  const std::vector<std::uint64_t> slots(flight::kSlots / 64 + 3, 1);
  recorder_.announced(0, 1, 50, slots);
  recorder_.settled(0, flight::kSlots + 64);
  recorder_.agreed(0, slots);
  recorder_.announced(8, 1, 50, slots);  // a set that is not listed
  const auto file = read(recorder_.path());
  EXPECT_EQ(file->announcements[0].words, flight::kSlots / 64);
  EXPECT_EQ(file->operations[0].number, 0U);
  EXPECT_EQ(file->sets[0].open.back(), 0U);
}

TEST_F(FlightRecorderTest, AnOperationHasItsTimes) {
  open();
  recorder_.announced(0, 3, 5, {});
  recorder_.begin_pass(10);
  const std::uint64_t operation =
      recorder_.planned({.first = {.name = "fc1.weight", .step = 3}, .sequence = 6, .tensors = 2});
  recorder_.begin_pass(20);
  recorder_.started(operation);
  recorder_.begin_pass(30);
  recorder_.ended(operation);
  const auto file = read(recorder_.path());
  EXPECT_EQ(file->operations[0].agreed, 10);
  EXPECT_EQ(file->operations[0].started, 20);
  EXPECT_EQ(file->operations[0].ended, 30);
  EXPECT_EQ(file->steps[0].step, 3U);
  EXPECT_EQ(file->steps[0].ended, 30);
  EXPECT_EQ(file->state.alive, 30);
}

TEST_F(FlightRecorderTest, TheRingKeepsTheLatestAndPassesOverWhatItHasLost) {
  open();
  const std::uint64_t first = announce_in_full("first");
  for (std::size_t i = 1; i <= flight::kTensors; ++i) announce_in_full(fmt::format("tensor {}", i));
  recorder_.begin_pass(9);
  recorder_.agreed(first);  // another tensor has its slot
  recorder_.agreed(0);
  recorder_.started(0);
  const auto file = read(recorder_.path());
  EXPECT_EQ(file->tensors[0].number, flight::kTensors + 1);
  EXPECT_EQ(std::string(file->tensors[0].name.data(), file->tensors[0].name_bytes),
            fmt::format("tensor {}", flight::kTensors));
  EXPECT_EQ(file->tensors[0].agreed, 0);
  EXPECT_EQ(file->tensors[1].number, 2U);
}

TEST_F(FlightRecorderTest, LongNamesAreCut) {
  open();
  announce_in_full(std::string(1000, 'x'));
  const auto file = read(recorder_.path());
  EXPECT_EQ(file->tensors[0].name_bytes, file->tensors[0].name.size());
  EXPECT_EQ(file->tensors[1].number, 0U);
}

TEST_F(FlightRecorderTest, SmallCallsHaveTheirNumberAndFingerprint) {
  open();
  for (std::uint64_t i = 0; i <= flight::kCalls; ++i) recorder_.called(2, i, i + 100);
  const auto file = read(recorder_.path());
  EXPECT_EQ(file->calls[0].set_and_sequence, std::uint64_t{2} << 40 | (flight::kCalls + 1));
  EXPECT_EQ(file->calls[0].fingerprint, flight::kCalls + 100);
  EXPECT_EQ(file->calls[1].set_and_sequence, std::uint64_t{2} << 40 | 2);
}

TEST_F(FlightRecorderTest, NothingFollowsAFailure) {
  open();
  recorder_.failed(Error{ErrorCode::kPeerLost, "rank 1 is lost"}, 1);
  EXPECT_FALSE(recorder_.on());
  recorder_.close(/*keep=*/true);
  ASSERT_THAT(files(), SizeIs(1));
  const auto file = read(folder_.path(files().front()));
  EXPECT_EQ(file->state.culprit, 1);
  EXPECT_EQ(std::string(file->state.message.data()), "rank 1 is lost");
  EXPECT_GT(file->state.failed_at, 0);
}

TEST_F(FlightRecorderTest, AnOrderlyEndRemovesTheFile) {
  open();
  recorder_.close(/*keep=*/false);
  EXPECT_THAT(files(), SizeIs(0));
}

TEST_F(FlightRecorderTest, TheFileStaysIfATensorFailedAlone) {
  open();
  recorder_.begin_pass(9);
  recorder_.failed_alone(announce_in_full("left out"), {.name = "left out"});
  recorder_.failed_alone(0, {.name = "left out, too"});
  recorder_.ended(recorder_.planned({}));
  recorder_.close(/*keep=*/false);
  ASSERT_THAT(files(), SizeIs(1));
  const auto file = read(folder_.path(files().front()));
  EXPECT_EQ(file->tensors[0].failed, 9);
  EXPECT_EQ(file->tensors[1].failed, 9);
  open();  // in the place of the old one
  recorder_.close(/*keep=*/false);
  EXPECT_THAT(files(), SizeIs(0));
}

TEST_F(FlightRecorderTest, AFileThatCannotBeMadeSwitchesItOff) {
  FlightOptions nowhere = options();
  nowhere.folder += "/none";
  testing::internal::CaptureStderr();
  recorder_.open(nowhere, Log("warning"));
  EXPECT_FALSE(recorder_.on());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no flight recorder: cannot create"));
  recorder_.close(/*keep=*/false);
}

TEST_F(FlightRecorderTest, ALimitOfFileSizesEndsNobody) {
  const int wrong = in_child([&] {
    const rlimit small = {4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) return 1;
    open();
    return recorder_.on() ? 2 : 0;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(files(), SizeIs(0));
}

TEST_F(FlightRecorderTest, OldFilesOfDeadProcessesAreRemoved) {
  FlightRecorder owner;
  owner.open(options(1), log_);
  const fs::path owned = owner.path();
  fs::last_write_time(owned, fs::file_time_type::clock::now() - std::chrono::hours(48));
  for (std::size_t i = 0; i <= kKeptFlightFiles; ++i) {
    const fs::path old = folder_.path(fmt::format("kolo-flight.old.{}.1", i));
    std::ofstream(old) << "old";
    fs::last_write_time(
        old, fs::file_time_type::clock::now() - std::chrono::hours(24) - std::chrono::seconds(i));
  }
  remove_flight_leftovers(folder_.path(""));
  EXPECT_THAT(files(), SizeIs(kKeptFlightFiles + 1));
  EXPECT_TRUE(fs::exists(owned)) << "its process lives";
  EXPECT_FALSE(fs::exists(folder_.path(fmt::format("kolo-flight.old.{}.1", kKeptFlightFiles))));
}

TEST_F(FlightRecorderTest, RanksRecordAlikeWhatTheyAgreeOn) {
  LocalWorldOptions world;
  world.variables["KOLO_FLIGHT_RECORDER"] = folder_.path("");
  std::vector<std::unique_ptr<flight::File>> recorded(2);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> a(4, 1.0F);
        std::vector<float> b(4, 1.0F);
        for (int step = 0; step < 2; ++step) {  // in full, then by slots
          const auto first =
              test::submit(runtime, rank == 0 ? allreduce_of("a", a) : allreduce_of("b", b));
          const auto second =
              test::submit(runtime, rank == 0 ? allreduce_of("b", b) : allreduce_of("a", a));
          ASSERT_TRUE(first->wait().ok());
          ASSERT_TRUE(second->wait().ok());
        }
        for (const std::string& name : files()) {
          if (name.find(fmt::format(".{}.{}", rank, ::getpid())) != std::string::npos)
            recorded[static_cast<std::size_t>(rank)] = read(folder_.path(name));
        }
      },
      world);
  ASSERT_TRUE(recorded[0] && recorded[1]);
  for (int rank = 0; rank < 2; ++rank) {
    const flight::File& file = *recorded[static_cast<std::size_t>(rank)];
    EXPECT_EQ(file.tensors[0].name[0], rank == 0 ? 'a' : 'b');  // as it has submitted them
    EXPECT_GT(file.tensors[0].agreed, 0);
    EXPECT_EQ(file.names[1].number, 2U);
    EXPECT_GT(file.announcements[0].number, 0U);
    EXPECT_EQ(file.sets[0].size, 2);
    EXPECT_EQ(file.sets[0].open[0], 0U);
    for (std::size_t i = 0; file.operations[i].number != 0; ++i) {
      EXPECT_EQ(file.operations[i].sequence, recorded[0]->operations[i].sequence);
      EXPECT_EQ(file.operations[i].name, recorded[0]->operations[i].name);
      EXPECT_GT(file.operations[i].ended, 0);
    }
  }
  EXPECT_THAT(files(), SizeIs(0));
}

}  // namespace
}  // namespace kolo::test
