#include "tools/run/read_text.h"

#include "runtime/base/check.h"
#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace kolo::run {

Result<std::string> read_text(const std::string& path) {
  const UniqueDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> bytes;
  ssize_t got = file ? 1 : -1;
  while (got > 0) {
    got = ::read(file.get(), bytes.data(), bytes.size());
    if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno == EINTR) got = 1;
  }
  if (got < 0) {
    return KOLO_ERROR(kInvalidArgument, "cannot read {}: {}", path,
                      std::generic_category().message(errno));
  }
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

}  // namespace kolo::run
