// How the examples fail: before they have trained for hours, all ranks together, and in one line.
// Main thread.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace examples {

/// "mnist: rank 1: what is wrong", without LibTorch's stack; and without the rank where there is
/// none yet, or the exception begins with one.
std::string failure_line(std::string_view program, const std::exception& exception);

/// Collective: whether `step`, which each rank does for itself, threw nowhere. Else the first rank
/// where it threw has told why.
bool succeed_on_all(std::string_view program, const std::function<void()>& step);

/// For a file that is written later: throws std::runtime_error that names it and the reason if it
/// could not be written now. Leaves all as it is.
void check_writable(const std::filesystem::path& file);

}  // namespace examples
