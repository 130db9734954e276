// Checks for numbers on the examples' command lines. A wrong value is refused by a line that names
// the option and quotes the value. Called while a command line is described, and to read it. Main
// thread.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <optional>

namespace examples {

/// A whole number from `least` to `most`.
CLI::Validator whole(std::int64_t least,
                     std::int64_t most = std::numeric_limits<std::int32_t>::max());

/// A finite number above 0, such as a learning rate.
CLI::Validator positive();

/// Reads the command line. A value is the exit status with which the program should end: 0 after
/// --help, 2 after a wrong option, like kolo-run.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace examples
