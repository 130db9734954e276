// Files that are replaced as a whole, without other ranks.
#include "bindings/torch/training/checkpoint_file.h"
#include "tests/support/message_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>

namespace {

namespace fs = std::filesystem;
using kolo::test::message_of;
using testing::HasSubstr;

/// A folder of this test's own, removed at its end.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::temp_directory_path() / (name + std::to_string(getpid()))) {
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string text_in(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A pipe or the like is neither replaced by a file nor waited for.
TEST(CheckpointFile, WhatIsNoFileIsRefusedAndStays) {
  const Folder folder("kolo_no_file_");
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const fs::path link = folder / "link";
  fs::create_symlink(pipe, link);
  const fs::path circle = folder / "circle";
  fs::create_symlink(circle, circle);
  const auto refusals = {std::pair(pipe, "is a pipe; name a file"),
                         std::pair(link, "is a pipe; name a file"),
                         std::pair(circle, "is a symlink that leads back to itself"),
                         std::pair(folder / "", "is a folder"),
                         std::pair(folder / "new/", "is no name of a file"),
                         std::pair(fs::path(), "is no name of a file"),
                         std::pair(fs::path("/dev/null"), "another character device")};
  for (const auto& [path, why] : refusals) {
    const fs::file_type type = fs::symlink_status(path).type();
    EXPECT_THAT(message_of([&] { kolo::write_whole_file(path, "text"); }), HasSubstr(why));
    EXPECT_THAT(message_of([&] { kolo::read_checkpoint_file(path); }), HasSubstr(why));
    EXPECT_EQ(fs::symlink_status(path).type(), type) << path;
  }
}

TEST(CheckpointFile, SymlinksAreFollowed) {
  const Folder folder("kolo_links_");
  fs::create_directory(folder / "other");
  const fs::path target = folder / "other/target";
  fs::create_symlink("other/target", folder / "second");  // link to a file that does not exist yet
  const fs::path link = folder / "first";
  fs::create_symlink(folder / "second", link);
  for (const char* const text : {"old", "new"}) {
    kolo::write_whole_file(link, text);
    EXPECT_EQ(text_in(target), text);
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_symlink(folder / "second"));
  EXPECT_EQ(text_in(link), "new");
}

/// Another process has left a link under the name of the file that is being written.
TEST(CheckpointFile, APartialFileThatIsALinkIsNotFollowed) {
  const Folder folder("kolo_partial_");
  std::ofstream(folder / "precious") << "kept";
  fs::create_symlink(folder / "precious", folder / "file.partial");
  kolo::write_whole_file(folder / "file", "text");
  EXPECT_EQ(text_in(folder / "precious"), "kept");
  EXPECT_EQ(text_in(folder / "file"), "text");
}

/// A folder that may be written but not read cannot be opened for fsync after the file is in place.
TEST(CheckpointFile, AFolderThatCannotBeOpenedIsWrittenTo) {
  const fs::path folder =
      fs::temp_directory_path() / ("kolo_checkpoint_file_" + std::to_string(getpid()));
  fs::create_directory(folder);
  kolo::write_whole_file(folder / "file", "old");
  const pid_t child = fork();
  if (child == 0) {
    // root may open everything, so another user writes.
    constexpr uid_t kNobody = 65534;
    const bool is_root = geteuid() == 0;
    if (is_root && chown(folder.c_str(), kNobody, kNobody) != 0) _exit(2);
    fs::permissions(folder, fs::perms::owner_write | fs::perms::owner_exec);
    if (is_root && seteuid(kNobody) != 0) _exit(3);
    const std::string message =
        kolo::test::message_of([&] { kolo::write_whole_file(folder / "file", "new"); });
    const bool has_failed = message != "(no error)";
    if (has_failed) std::cerr << message << '\n';
    _exit(has_failed ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fs::permissions(folder, fs::perms::owner_all);
  std::ifstream file(folder / "file");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "new");
  fs::remove_all(folder);
}

}  // namespace
