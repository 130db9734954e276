// Adding and removing process sets, until all ranks have done it. Header-only.
#pragma once

#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace kolo::test {

/// The number of the new set; collective over the world.
inline std::uint32_t added(Runtime& runtime, std::vector<int> ranks) {
  const auto work = runtime.add_process_set(std::move(ranks));
  EXPECT_TRUE(work.ok());
  const Status status = (*work)->wait();
  EXPECT_TRUE(status.ok()) << status.error().message;
  return static_cast<std::uint32_t>((*work)->outcome().value);
}

inline Status removed(Runtime& runtime, std::uint32_t set) {
  const auto work = runtime.remove_process_set(set);
  return work.ok() ? (*work)->wait() : Status(work.error());
}

}  // namespace kolo::test
