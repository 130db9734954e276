// Control groups described by files in a folder of the test's own. Header-only.
#pragma once

#include "runtime/base/control_groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kolo::test {

/// "self" lists the groups of the process; their hierarchies are below "mount".
class ControlGroupFiles : public ::testing::Test {
 protected:
  ControlGroupFiles()
      : folder_(::testing::TempDir() + "kolo_groups_" + std::to_string(::getpid())) {}
  ~ControlGroupFiles() override { std::filesystem::remove_all(folder_); }
  ControlGroupFiles(const ControlGroupFiles&) = delete;
  ControlGroupFiles& operator=(const ControlGroupFiles&) = delete;

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = path_of(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  ControlGroupPaths paths() const { return {path_of("self"), path_of("mount")}; }

 private:
  const std::string folder_;
};

}  // namespace kolo::test
