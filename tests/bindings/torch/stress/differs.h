// The exception of a random program of kolo::torch that finds something wrong.
#pragma once

#include <stdexcept>

namespace kolo::test {

/// kolo's values are not those of one process.
struct Differs : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kolo::test
