// The timeline's parts: the ring, the tracks, the file and its JSON.
#include "runtime/observe/timeline.h"
#include "tests/support/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace kolo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

NoteRecord note_of(std::int64_t number) { return {number}; }

TEST(TraceRing, WhatDoesNotFitIsDroppedAndCounted) {
  TraceRing ring(1 << 12);
  constexpr std::int64_t kPushed = 100;
  for (std::int64_t i = 0; i < kPushed; ++i) ring.push(note_of(i), "text");
  std::int64_t next = 0;
  const std::size_t taken = ring.drain([&](const TraceRecord& record, std::string_view text) {
    EXPECT_EQ(std::get<NoteRecord>(record).at, next++);  // the oldest stay
    EXPECT_EQ(text, "text");
  });
  EXPECT_GT(taken, 5U);
  EXPECT_GT(ring.dropped(), 0U);
  EXPECT_EQ(taken + ring.dropped(), static_cast<std::size_t>(kPushed));
  ring.push(note_of(-1), "");  // there is room again
  EXPECT_EQ(ring.drain([](const TraceRecord&, std::string_view) {}), 1U);
}

TEST(TraceRing, OneThreadPushesWhileAnotherDrains) {
  TraceRing ring(1 << 14);
  constexpr std::int64_t kPushed = 50'000;
  std::atomic<bool> ended = false;
  std::thread producer([&] {
    for (std::int64_t i = 0; i < kPushed; ++i) {
      ring.push(note_of(i), std::string(static_cast<std::size_t>(i % 97), 'a'));
    }
    ended = true;
  });
  std::uint64_t taken = 0;
  std::int64_t last = -1;
  bool over = false;
  while (!over) {
    over = ended;
    taken += ring.drain([&](const TraceRecord& record, std::string_view text) {
      const std::int64_t number = std::get<NoteRecord>(record).at;
      EXPECT_GT(number, last);
      EXPECT_EQ(text, std::string(static_cast<std::size_t>(number % 97), 'a'));
      last = number;
    });
  }
  producer.join();
  EXPECT_EQ(taken + ring.dropped(), static_cast<std::uint64_t>(kPushed));
}

TEST(TrackTable, WhatRunsAtOnceGetsALaneOfItsOwn) {
  TrackTable tracks;
  const auto number = [&](std::string_view title, TraceTime begin, TraceTime end) {
    return tracks.assign(title, begin, end).number;
  };
  const int first = number("a", 0, 10);
  EXPECT_EQ(number("a", 10, 20), first);
  const int second = number("a", 15, 25);
  EXPECT_NE(second, first);
  EXPECT_EQ(number("a", 21, 30), first);
  EXPECT_NE(number("b", 100, 110), first);
}

TEST(TrackTable, NamesWithoutEndShareLanes) {
  TrackTable tracks;
  for (std::size_t i = 0; i < TrackTable::kMaxTitles; ++i) {
    const std::string name = std::to_string(i);
    std::string_view title = name;
    tracks.assign(title, 0, 1);
    EXPECT_EQ(title, name);
  }
  std::string_view title = "one more";
  tracks.assign(title, 0, 1);
  EXPECT_EQ(title, TrackTable::kOthers);
}

TEST(TimelinePath, HasTheRank) {
  EXPECT_EQ(timeline_path("/a/trace.json", 3, 4), "/a/trace.3.json");
  EXPECT_EQ(timeline_path("/a/trace.json", 0, 1), "/a/trace.json");
  EXPECT_EQ(timeline_path("/a.b/trace", 3, 4), "/a.b/trace.3");
  EXPECT_EQ(timeline_path("/a/.trace", 3, 4), "/a/.trace.3");
  EXPECT_EQ(timeline_path("/a/%r/t-%r.json", 12, 16), "/a/12/t-12.json");
  EXPECT_EQ(timeline_path("t%r.json", 0, 1), "t0.json");
}

TEST(Timeline, WithoutAPathThereIsNone) {
  const auto timeline = Timeline::open({});
  ASSERT_TRUE(timeline.ok());
  (*timeline)->start({});
  EXPECT_FALSE((*timeline)->on());
  EXPECT_TRUE((*timeline)->stop().ok());
}

TEST(Timeline, AFileThatCannotBeCreatedIsAnErrorWithTheReason) {
  const auto timeline =
      Timeline::open({.path = "/no/such/folder/trace.json", .rank = 2, .size = 4});
  ASSERT_FALSE(timeline.ok());
  EXPECT_EQ(timeline.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(timeline.error().message,
              AllOf(HasSubstr("rank 2"), HasSubstr("KOLO_TIMELINE"),
                    HasSubstr("/no/such/folder/trace.2.json"), HasSubstr("No such file")));
}

/// The error message; empty if there is a timeline.
std::string refusal_of(const std::string& path, int rank = 0, int size = 1) {
  const auto timeline = Timeline::open({.path = path, .rank = rank, .size = size});
  return timeline.ok() ? "" : timeline.error().message;
}

TEST(Timeline, WhatIsNoFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto names_a_pipe =
      AllOf(HasSubstr("rank 2: KOLO_TIMELINE='" + pipe + "': '" + pipe + "' is a pipe;"),
            HasSubstr("name one"));
  EXPECT_THAT(refusal_of(pipe, 2, 4), names_a_pipe);  // nobody reads
  const UniqueDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader);
  EXPECT_THAT(refusal_of(pipe, 2, 4), names_a_pipe);
  EXPECT_THAT(refusal_of("/dev/full"), HasSubstr("'/dev/full' is a terminal or another character"));
  EXPECT_THAT(refusal_of(folder.path("")), HasSubstr("is a folder; a timeline"));
}

TEST(Timeline, TheFileOfTheProgramsOutputIsRefusedAndStaysAsItIs) {
  const TemporaryFolder folder;
  const std::string path = folder.path("output");
  const UniqueDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
  const UniqueDescriptor own(::dup(STDOUT_FILENO));
  ASSERT_EQ(::pwrite(file.get(), "text", 4, 0), 4);
  ASSERT_EQ(::dup2(file.get(), STDOUT_FILENO), STDOUT_FILENO);
  const std::string by_name = refusal_of(path);
  const std::string by_device = refusal_of("/dev/stdout", 1, 2);
  ASSERT_EQ(::dup2(own.get(), STDOUT_FILENO), STDOUT_FILENO);
  EXPECT_THAT(by_name, HasSubstr("output' is where the program's own output goes"));
  EXPECT_THAT(by_device, HasSubstr("'/dev/stdout' is where the program's own output goes"));
  EXPECT_EQ(std::filesystem::file_size(path), 4U);
}

TEST(Timeline, OfNothingIsTakenByAllRanks) {
  auto timeline = Timeline::open({.path = "/dev/null", .rank = 1, .size = 2});
  ASSERT_TRUE(timeline.ok()) << timeline.error().message;
  (*timeline)->start({});
  (*timeline)->record(note_of(2000), "something");
  EXPECT_TRUE((*timeline)->stop().ok());
  EXPECT_FALSE(std::filesystem::exists("/dev/null.1"));
}

class TimelineFile : public testing::Test {
 protected:
  std::unique_ptr<Timeline> open() {
    auto timeline = Timeline::open({.path = path_, .ring_bytes = 1 << 16});
    EXPECT_TRUE(timeline.ok());
    (*timeline)->start({.host = "a \"host\"", .pid = 17, .zero = 1000});
    return *std::move(timeline);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path("trace.json");
};

TEST_F(TimelineFile, IsValidAtEveryFlushAndAtItsEnd) {
  const auto timeline = open();
  EXPECT_EQ(metadata(read_trace(path_), "kolo").at("pid"), 17);
  for (std::size_t i = 1; i <= 3; ++i) {
    timeline->record(note_of(2000), "something");
    timeline->flush();
    EXPECT_EQ(select(read_trace(path_), "name", "something").size(), i);
  }
  ASSERT_TRUE(timeline->stop().ok());
  const auto end = metadata(read_trace(path_), "kolo_end");
  EXPECT_EQ(end.at("records"), 3);
  EXPECT_EQ(end.at("dropped"), 0);
}

TEST_F(TimelineFile, ThatIsLongerIsEmptiedFirst) {
  std::ofstream(path_) << std::string(1 << 16, '?');
  ASSERT_TRUE(open()->stop().ok());
  EXPECT_EQ(metadata(read_trace(path_), "kolo_end").at("records"), 0);
}

TEST_F(TimelineFile, NamesAreEscaped) {
  const auto timeline = open();
  const std::string name = "a \"b\" \\ \n\t\x01 ö 漢 🎉";
  timeline->record(TensorRecord{.kind = "allreduce",
                                .type = "float32",
                                .submitted = 2000,
                                .drained = 3000,
                                .ended = 4000},
                   name);
  using namespace std::string_literals;
  timeline->record(OperationRecord{.kind = "allreduce", .started = 2000, .ended = 2500},
                   "ring\0\"first\"\0second"s);
  ASSERT_TRUE(timeline->stop().ok());
  const Events events = read_trace(path_);
  const Events tensors = select(events, "cat", "tensor");
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].at("args").at("tensor"), name);
  const Events operations = select(events, "name", "ring");
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].at("args").at("names"), (nlohmann::json{"\"first\"", "second"}));
}

TEST_F(TimelineFile, BytesThatAreNotUtf8AreReplaced) {
  const auto timeline = open();
  // A lone continuation, an overlong slash, a surrogate, a cut sequence.
  for (const char* name : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xE6\xBC", "\xF5\x80\x80\x80"}) {
    timeline->record(note_of(2000), name);
  }
  ASSERT_TRUE(timeline->stop().ok());
  const Events notes = select(read_trace(path_), "cat", "note");
  ASSERT_EQ(notes.size(), 5U);
  for (const auto& note : notes) {
    EXPECT_THAT(note.at("name").get<std::string>(), HasSubstr("\xEF\xBF\xBD"));
  }
}

TEST_F(TimelineFile, SaysHowManyRecordsWereLost) {
  TraceRing ring(1 << 12);
  for (std::int64_t i = 0; i < 100; ++i) ring.push(note_of(2000), "kept");
  const std::uint64_t lost = ring.dropped();
  ASSERT_GT(lost, 0U);
  UniqueDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT, 0644));
  TimelineWriter writer(ring, std::move(file), path_);
  writer.start({.zero = 1000});
  ASSERT_TRUE(writer.stop().ok());
  const Events events = read_trace(path_);
  EXPECT_EQ(select(events, "name", "kept").size(), 100 - lost);
  EXPECT_EQ(metadata(events, "kolo_end").at("dropped"), lost);
  EXPECT_EQ(select(events, "name", std::to_string(lost) + " records lost so far: the ring was full")
                .size(),
            1U);
}

TEST(TimelineWriter, AFullDiskIsReported) {
  TraceRing ring(1 << 12);
  UniqueDescriptor file(::open("/dev/full", O_WRONLY));
  TimelineWriter writer(ring, std::move(file), "/dev/full");
  writer.start({});
  const Status status = writer.stop();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("No space left"));
}

}  // namespace
}  // namespace kolo::test
