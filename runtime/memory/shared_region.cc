#include "runtime/memory/shared_region.h"

#include "runtime/base/available_memory.h"
#include "runtime/base/check.h"
#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr std::string_view kKeyName = "kolo memfd ";
constexpr std::size_t kWorthALook = 16 << 20;
// Bytes per fallocate(). Many kernels undo a call that a signal interrupts, and some programs get a
// signal every few milliseconds, for example from a profiler.
constexpr std::size_t kStep = 16 << 20;

/// What a peer needs to find the memory. Device and inode prove that it is the right memory: in
/// another process namespace the same pid is another process.
struct Key {
  std::int64_t pid = 0;
  std::int64_t fd = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
};

/// The regions of this process. A forked child gets private copies: its writes stay in the child,
/// and pages that it only reads cost no memory. The child has no part in the job, so it gets no
/// mappings of peers' regions.
class OwnRegions {
 public:
  static OwnRegions& instance() {
    static OwnRegions& regions = *new OwnRegions;  // never destroyed: static objects may outlive it
    return regions;
  }
  void add(std::span<std::byte> bytes, int fd) {
    const std::lock_guard lock(mutex_);
    regions_.push_back({bytes, fd});
  }
  void remove(const std::byte* begin) {
    const std::lock_guard lock(mutex_);
    std::erase_if(regions_, [&](const Region& region) { return region.bytes.data() == begin; });
  }

 private:
  struct Region {
    std::span<std::byte> bytes;
    int fd;
  };

  OwnRegions() {
    const int registered =
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().separate(); });
    KOLO_CHECK(registered == 0);
  }

  /// Runs in the child after a fork. The child's own children inherit the result.
  void separate() {
    for (const Region& region : regions_) {
      void* const begin = region.bytes.data();
      const std::size_t size = region.bytes.size();
      if (mmap(begin, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
               region.fd, 0) == MAP_FAILED)
        mprotect(begin, size, PROT_READ);  // a write must not change the parent's memory
      madvise(begin, size, MADV_DONTDUMP);
    }
    regions_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Region> regions_;
};

class Mapping {
 public:
  Mapping(void* address, std::size_t bytes) : bytes_(static_cast<std::byte*>(address), bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ~Mapping() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// Whether addresses suffice for a region of each rank, plus as much for the program's other needs.
bool has_addresses(std::size_t bytes, int ranks) {
  if (ranks == 1) return true;  // mmap() itself will tell
  const std::size_t regions = static_cast<std::size_t>(ranks) + 1;
  if (bytes > SIZE_MAX / regions) return false;
  void* const address =
      mmap(nullptr, regions * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return false;
  munmap(address, regions * bytes);
  return true;
}

Result<Mapping> map(int fd, std::size_t bytes) {
  void* const address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) {
    return KOLO_ERROR(kOutOfMemory, "cannot map {} bytes of shared memory: {}", bytes,
                      std::strerror(errno));
  }
  // Asks for fewer and larger pages, if the system has them for shared memory.
  madvise(address, bytes, MADV_HUGEPAGE);
  // A core dump would read all reserved memory, and so allocate it, once for each rank.
  madvise(address, bytes, MADV_DONTDUMP);
  return Mapping(address, bytes);
}

class SharedRegion final : public MemoryRegion {
 public:
  SharedRegion(UniqueDescriptor fd, Mapping mapping, std::string key)
      : fd_(std::move(fd)), mapping_(std::move(mapping)), key_(std::move(key)) {
    OwnRegions::instance().add(mapping_.bytes(), fd_.get());
  }
  ~SharedRegion() override { OwnRegions::instance().remove(mapping_.bytes().data()); }
  std::span<std::byte> bytes() const override { return mapping_.bytes(); }
  std::string key() const override { return key_; }

  Status commit(std::size_t offset, std::size_t bytes) override {
    // The kernel would first take the memory from other processes, and then kill one.
    const std::size_t available = bytes < kWorthALook ? bytes : available_memory();
    if (bytes > available) {
      return KOLO_ERROR(kOutOfMemory,
                        "no {} bytes of shared memory: this host, or the control group that this "
                        "process is in, has {} to spare",
                        bytes, available);
    }
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t step = std::min(kStep, bytes - done);
      if (fallocate(fd_.get(), 0, static_cast<off_t>(offset + done), static_cast<off_t>(step)) == 0)
        done += step;
      else if (errno != EINTR) {
        Error error = KOLO_ERROR(kOutOfMemory, "no {} bytes of shared memory: {}", bytes,
                                 std::strerror(errno));
        discard(offset, done);
        return error;
      }
    }
    return {};
  }
  void discard(std::size_t offset, std::size_t bytes) override {
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  }

 private:
  UniqueDescriptor fd_;
  Mapping mapping_;
  std::string key_;
};

class SharedMapping final : public PeerMapping {
 public:
  explicit SharedMapping(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::span<std::byte> bytes() const override { return mapping_.bytes(); }

 private:
  Mapping mapping_;
};

}  // namespace

Result<std::unique_ptr<MemoryRegion>> reserve_shared_region(std::size_t bytes, int ranks) {
  UniqueDescriptor fd(memfd_create("kolo", MFD_CLOEXEC));
  if (!fd) return KOLO_ERROR(kUnsupported, "memfd_create: {}", std::strerror(errno));
  const std::size_t size = std::max(bytes, std::size_t{1});
  // The kernel ends a process that exceeds this limit.
  rlimit most{};
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      size > most.rlim_cur) {
    return KOLO_ERROR(kOutOfMemory,
                      "cannot reserve {} bytes of shared memory: files may have {} (ulimit -f)",
                      size, most.rlim_cur);
  }
  if (!has_addresses(size, ranks)) {
    return KOLO_ERROR(kOutOfMemory,
                      "this process has no addresses for {} bytes of shared memory of each of {} "
                      "ranks (ulimit -v)",
                      size, ranks);
  }
  struct stat status {};
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0 || fstat(fd.get(), &status) != 0) {
    return KOLO_ERROR(kOutOfMemory, "cannot reserve {} bytes of shared memory: {}", size,
                      std::strerror(errno));
  }
  KOLO_ASSIGN(Mapping mapping, map(fd.get(), size));
  const Key key{.pid = getpid(),
                .fd = fd.get(),
                .device = status.st_dev,
                .inode = status.st_ino,
                .bytes = size};
  std::string text(kKeyName);
  text.append(reinterpret_cast<const char*>(&key), sizeof(key));
  return std::unique_ptr<MemoryRegion>(
      std::make_unique<SharedRegion>(std::move(fd), std::move(mapping), std::move(text)));
}

Result<std::unique_ptr<PeerMapping>> map_shared_region(std::string_view text) {
  if (text.size() != kKeyName.size() + sizeof(Key) || !text.starts_with(kKeyName)) {
    return KOLO_ERROR(kInvalidArgument, "a key of {} bytes is none of shared memory", text.size());
  }
  Key key;
  std::memcpy(&key, text.data() + kKeyName.size(), sizeof(key));
  const std::string path = fmt::format("/proc/{}/fd/{}", key.pid, key.fd);
  const UniqueDescriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    return KOLO_ERROR(kUnsupported, "cannot open the shared memory of process {}: {}", key.pid,
                      std::strerror(errno));
  }
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || status.st_dev != key.device || status.st_ino != key.inode) {
    return KOLO_ERROR(kUnsupported,
                      "process {} here is not the one that shares its memory: the two are in "
                      "different process namespaces",
                      key.pid);
  }
  KOLO_ASSIGN(Mapping mapping, map(fd.get(), key.bytes));
  madvise(mapping.bytes().data(), mapping.bytes().size(), MADV_DONTFORK);
  return std::unique_ptr<PeerMapping>(std::make_unique<SharedMapping>(std::move(mapping)));
}

}  // namespace kolo
