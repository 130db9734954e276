// The message of a call that fails. For tests of exceptions.
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
