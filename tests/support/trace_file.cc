#include "tests/support/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

namespace kolo::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "kolo_timeline_XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::size_t TemporaryFolder::files() const {
  const auto files = std::filesystem::directory_iterator(path_);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

Events read_trace(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  const nlohmann::json list = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(list.is_array()) << path;
  if (!list.is_array()) return {};
  return {list.begin(), list.end()};
}

Events select(const Events& events, const char* field, std::string_view value) {
  Events chosen;
  for (const auto& event : events) {
    if (event.contains(field) && event[field] == value) chosen.push_back(event);
  }
  return chosen;
}

std::int64_t begin_of(const nlohmann::json& slice) {
  return std::llround(slice.at("ts").get<double>() * 1000);
}

std::int64_t end_of(const nlohmann::json& slice) {
  return begin_of(slice) + std::llround(slice.at("dur").get<double>() * 1000);
}

nlohmann::json metadata(const Events& events, std::string_view name) {
  const Events found = select(events, "name", name);
  EXPECT_EQ(found.size(), 1U) << name;
  return found.empty() ? nlohmann::json::object() : found.front().at("args");
}

}  // namespace kolo::test
