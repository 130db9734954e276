// Files that are written as a whole, without other ranks.
#include "bindings/torch/checkpoint_file.h"
#include "tests/support/message_of.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace {

namespace fs = std::filesystem;

/// One that may be written but not read cannot be opened to be synced, when the file is in place.
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
