// Failures of one rank that all ranks are to know of.
#pragma once

#include <kolo/torch/objects.h>

#include <exception>
#include <string>

namespace kolo {

/// Why `call` fails, in one line, or nothing.
template <class Call>
std::string failure_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& exception) {
    return reason_of(exception);
  }
  return "";
}

}  // namespace kolo
