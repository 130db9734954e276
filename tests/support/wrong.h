// What a random program throws when kolo did something else than it promises.
#pragma once

#include <stdexcept>

namespace kolo::test {

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kolo::test
