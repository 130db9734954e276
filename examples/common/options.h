// What numbers the options of the examples take; each other one is refused by a line that names the
// option and quotes it. Called while a command line is described, and to read it. Main thread.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <optional>

namespace examples {

/// A whole number from `least` to `most`.
CLI::Validator whole(std::int64_t least,
                     std::int64_t most = std::numeric_limits<std::int32_t>::max());

/// A finite number above 0, as a learning rate is.
CLI::Validator positive();

/// Reads the command line. The exit status of a program that ends here: 0 after --help, 2 after a
/// wrong option, as kolo-run's.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace examples
