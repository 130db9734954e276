// What a call says when it fails. For tests of what throws.
#pragma once

#include <exception>
#include <string>

namespace kolo::test {

/// The message that `call` throws.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace kolo::test
