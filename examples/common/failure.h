// Error reporting of the examples: all ranks find a problem together, before they train for hours,
// and report it in one line. Main thread.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace examples {

/// One line such as "mnist: rank 1: what is wrong", without LibTorch's stack trace. The rank is
/// left out before kolo::init() and where the exception's text already begins with one.
std::string failure_line(std::string_view program, const std::exception& exception);

/// Collective: every rank runs `step`. True if it threw on no rank; otherwise the first rank where
/// it threw has printed the reason.
bool succeed_on_all(std::string_view program, const std::function<void()>& step);

/// Throws std::runtime_error with the file's name and the reason if `file` cannot be written now.
/// Call it before a long run that writes the file later. The file stays as it is.
void check_writable(const std::filesystem::path& file);

}  // namespace examples
