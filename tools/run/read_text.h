// ReadText: reads a small file. Used by kolo-run's main thread.
#pragma once

#include <kolo/error.h>

#include <string>

namespace kolo::run {

/// Returns the text without a UTF-8 byte order mark. kInvalidArgument says why the file cannot be
/// read.
Result<std::string> read_text(const std::string& path);

}  // namespace kolo::run
