// What numbers the options of the examples take; each other one is refused by a line that names the
// option and quotes it. Called while a command line is described.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>

namespace examples {

/// A whole number from `least` to `most`.
CLI::Validator whole(std::int64_t least,
                     std::int64_t most = std::numeric_limits<std::int32_t>::max());

/// A finite number above 0, as a learning rate is.
CLI::Validator positive();

}  // namespace examples
