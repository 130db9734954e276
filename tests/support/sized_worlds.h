// SizedWorlds: a fixture of worlds by size and KOLO_SHARED_MEMORY, for behaviour that must be the
// same over windows and messages. Header-only.
#pragma once

#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace kolo::test {

class SizedWorlds : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  LocalWorldOptions options() const {
    LocalWorldOptions options;
    options.variables = {{"KOLO_SHARED_MEMORY", std::get<1>(GetParam())}};
    return options;
  }
};

}  // namespace kolo::test
