// The exception of a random program when kolo breaks a promise.
#pragma once

#include <stdexcept>

namespace kolo::test {

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kolo::test
