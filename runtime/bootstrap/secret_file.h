// The job's secret, from the environment or from a file that only its owner can read. Used by the
// thread that calls init, and by kolo-run.
#pragma once

#include <kolo/error.h>

#include <string>

namespace kolo {

/// The file's content, without the end of its last line. kInvalidArgument, naming the file and the
/// remedy, unless this is a regular file of this user or root, of mode 600 or less, with 1 to 4,096
/// bytes.
Result<std::string> read_secret_file(const std::string& path);

/// `secret` if it is not empty, else the content of the file `path`; empty if neither is given.
Result<std::string> secret_or_file(const std::string& secret, const std::string& path);

}  // namespace kolo
