// What the tests of the training tools share.
#pragma once

#include <exception>
#include <string>

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
