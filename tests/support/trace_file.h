// Reads a timeline's file in a test. Any thread.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::test {

/// A folder of this test's own, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(std::string_view name) const { return (path_ / name).string(); }
  std::size_t files() const;

 private:
  std::filesystem::path path_;
};

using Events = std::vector<nlohmann::json>;

/// All events; a file that is not strictly valid JSON fails the test.
Events read_trace(const std::string& path);
/// The events whose `field` is `value`.
Events select(const Events& events, const char* field, std::string_view value);
/// The begin of a slice in nanoseconds, which microseconds with three decimals give exactly.
std::int64_t begin_of(const nlohmann::json& slice);
std::int64_t end_of(const nlohmann::json& slice);
/// The metadata of this name; fails the test if there is not exactly one.
nlohmann::json metadata(const Events& events, std::string_view name);

}  // namespace kolo::test
