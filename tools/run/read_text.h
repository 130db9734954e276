// ReadText: a small file. Used by kolo-run's main thread.
#pragma once

#include <kolo/error.h>

#include <string>

namespace kolo::run {

/// Without the mark that some editors put before UTF-8. kInvalidArgument says why it cannot be
/// read.
Result<std::string> read_text(const std::string& path);

}  // namespace kolo::run
