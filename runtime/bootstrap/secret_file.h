// The job's secret, from the environment or from a file that only its owner can read. Used by the
// thread that calls init, and by kolo-run.
#pragma once

#include <kolo/error.h>

#include <string>

namespace kolo {

/// What the file holds, without the end of its last line. kInvalidArgument, naming the file and
/// what to do, unless it is a regular file of this user's or root's, of mode 600 or less, that
/// holds 1 to 4,096 bytes.
Result<std::string> read_secret_file(const std::string& path);

/// `secret` unless it is empty, else what `path` holds; empty if neither is given.
Result<std::string> secret_or_file(const std::string& secret, const std::string& path);

}  // namespace kolo
