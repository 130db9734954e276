// The file has four lines: its format, the topology, ten numbers, a checksum of the lines before.
// Called by the thread that starts the runtime.
#include "runtime/tuning/link_cache.h"

#include "runtime/base/fnv.h"
#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kolo {
namespace {

constexpr std::string_view kFirstLine = "kolo link costs 2";
constexpr std::string_view kPrefix = "links-";  ///< prefix of a file's name
constexpr std::size_t kLongest = 4 << 10;       ///< bytes of a file's numbers
constexpr std::string_view kAway = "Remove it, or set KOLO_LINK_CACHE=0";

std::string encode(const LinkCosts& costs) {
  std::string text;
  for (const LinkCost* const link : {&costs.inside, &costs.across})
    for (const auto number : kLinkCostNumbers)
      text += fmt::format("{}{}", text.empty() ? "" : " ", link->*number);
  return text;
}

std::optional<LinkCosts> decode(std::string_view text) {
  LinkCosts costs;
  const char* next = text.data();
  const char* const end = next + text.size();
  for (LinkCost* const link : {&costs.inside, &costs.across})
    for (const auto number : kLinkCostNumbers) {
      double* const value = &(link->*number);
      if (next != text.data() && (next == end || *next++ != ' ')) return std::nullopt;
      const auto [rest, error] = std::from_chars(next, end, *value);
      if (error != std::errc() || !std::isfinite(*value) || *value < 0) return std::nullopt;
      next = rest;
    }
  return next == end ? std::optional(costs) : std::nullopt;
}

std::string contents_of(const std::string& topology, const LinkCosts& costs) {
  std::string text = fmt::format("{}\n{}\n{}\n", kFirstLine, topology, encode(costs));
  return text + fmt::format("{:016x}\n", fnv1a(text));
}

Error system_error(std::string_view doing, const std::string& path) {
  return KOLO_ERROR(kInternal, "{} {}: {}", doing, path, std::strerror(errno));
}

Result<std::string> read_all(int file, std::size_t size, const std::string& path) {
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file, text.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("reading", path);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

/// Opens a file that this user alone can write; nothing if there is none.
Result<UniqueDescriptor> open_own(const std::string& path, struct stat& status) {
  UniqueDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return file;
  if (!file || ::fstat(file.get(), &status) != 0) {
    Error error = system_error("opening", path);
    error.message += ". Name a folder of this user's by KOLO_CACHE_DIR, or set KOLO_LINK_CACHE=0";
    return error;
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return KOLO_ERROR(kInternal, "{} is not a file that this user alone can write. {}", path,
                      kAway);
  return file;
}

/// Removes files that are too old to be used. Hosts come and go, above all containers.
void remove_old(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    std::error_code gone;
    const auto written = entry->last_write_time(gone);
    if (gone || std::filesystem::file_time_type::clock::now() - written < LinkCache::kLifetime)
      continue;
    std::filesystem::remove(entry->path(), gone);
  }
}

}  // namespace

LinkCache::LinkCache(std::string folder, std::string topology)
    : folder_(std::move(folder)), topology_(std::move(topology)) {
  if (folder_.empty()) return;
  // Files of other versions have other names, so they cause no error.
  const std::string what = fmt::format("{}\n{}", kFirstLine, topology_);
  path_ = fmt::format("{}/{}{:016x}", folder_, kPrefix, fnv1a(what));
}

Result<std::optional<LinkCosts>> LinkCache::load() const {
  using Nothing = std::optional<LinkCosts>;
  if (path_.empty()) return Nothing();
  struct stat status = {};
  KOLO_ASSIGN(const UniqueDescriptor file, open_own(path_, status));
  if (!file) return Nothing();
  const auto written = std::chrono::system_clock::from_time_t(status.st_mtime);
  const auto age = std::chrono::system_clock::now() - written;
  if (age > kLifetime || age < -kLifetime) return Nothing();
  const std::string head = fmt::format("{}\n{}\n", kFirstLine, topology_);
  if (std::cmp_greater(status.st_size, head.size() + kLongest))
    return KOLO_ERROR(kInternal, "{} has {} bytes, which are no link costs. {}", path_,
                      status.st_size, kAway);
  KOLO_ASSIGN(const std::string text,
              read_all(file.get(), static_cast<std::size_t>(status.st_size), path_));

  if (text.starts_with(head)) {
    const std::string rest = text.substr(head.size());
    const auto costs = decode(std::string_view(rest).substr(0, rest.find('\n')));
    if (costs && contents_of(topology_, *costs) == text) return Nothing(*costs);
  }
  return KOLO_ERROR(kInternal, "{} is not whole, or not of these hosts. {}", path_, kAway);
}

Status LinkCache::store(const LinkCosts& costs) const {
  if (path_.empty()) return {};
  std::error_code error;
  // As ~/.cache/kolo: a home directory that does not exist is not for us to make.
  std::filesystem::create_directory(std::filesystem::path(folder_).parent_path(), error);
  std::filesystem::create_directory(folder_, error);
  const std::string text = contents_of(topology_, costs);
  // Write to a private name first. So no reader sees half a file, and the last of several writers
  // wins.
  const std::string draft = fmt::format("{}.{}", path_, ::getpid());
  {
    const UniqueDescriptor file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return system_error("creating", draft);
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      Error failed = system_error("writing", draft);
      ::unlink(draft.c_str());
      return failed;
    }
  }
  if (::rename(draft.c_str(), path_.c_str()) == 0) {
    remove_old(folder_);
    return {};
  }
  Error failed = system_error("renaming", draft);
  ::unlink(draft.c_str());
  return failed;
}

std::string topology_of(const World& world, std::string_view transport) {
  std::string text = fmt::format("{};", transport);
  for (int rank = 0; rank < world.size(); ++rank) text += ' ' + world.info(rank).host_id;
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

Result<std::optional<LinkCosts>> share_costs(Bootstrap& bootstrap,
                                             const std::optional<LinkCosts>& mine,
                                             Deadline deadline) {
  const bool decides = bootstrap.rank() == 0;
  KOLO_ASSIGN(const auto all,
              bootstrap.exchange("known links", decides && mine ? encode(*mine) : "", deadline));
  if (all.front().empty()) return std::optional<LinkCosts>();
  const auto costs = decode(all.front());
  if (!costs) return KOLO_ERROR(kInternal, "rank 0 sent no costs of links: '{}'", all.front());
  return costs;
}

}  // namespace kolo
