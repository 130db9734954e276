// The memory of LoopbackTransport. Ranks share one address space, so every region is mapped
// already, and a key only holds the region's number in the hub.
#include "runtime/base/check.h"
#include "transport/loopback/loopback_transport.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>

namespace kolo {
namespace {

constexpr std::string_view kKeyName = "loopback memory ";

/// Anonymous pages: zeroed and aligned; an absurd size is refused and does not end the process. A
/// rank that maps them keeps them alive, as it would keep another process's pages.
class Pages {
 public:
  Pages(std::byte* memory, std::size_t size, std::size_t used)
      : memory_(memory), size_(size), used_(used) {}
  ~Pages() { munmap(memory_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<std::byte> bytes() const { return {memory_, used_}; }

 private:
  std::byte* memory_;
  std::size_t size_;
  std::size_t used_;
};

std::string key_of(std::uint64_t number) {
  std::string key(kKeyName);
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
  return key;
}

class AllocatedRegion final : public MemoryRegion {
 public:
  AllocatedRegion(std::shared_ptr<Pages> memory, std::string key)
      : memory_(std::move(memory)), key_(std::move(key)) {}
  std::span<std::byte> bytes() const override { return memory_->bytes(); }
  std::string key() const override { return key_; }
  void discard(std::size_t offset, std::size_t bytes) override {
    madvise(memory_->bytes().data() + offset, bytes, MADV_DONTNEED);
  }

 private:
  std::shared_ptr<Pages> memory_;
  std::string key_;
};

class BorrowedRegion final : public MemoryRegion {
 public:
  explicit BorrowedRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  std::string key() const override { return {}; }  // nobody can map it

 private:
  std::span<std::byte> bytes_;
};

class LoopbackMapping final : public PeerMapping {
 public:
  explicit LoopbackMapping(std::shared_ptr<Pages> memory) : memory_(std::move(memory)) {}
  std::span<std::byte> bytes() const override { return memory_->bytes(); }

 private:
  std::shared_ptr<Pages> memory_;
};

}  // namespace

Result<std::unique_ptr<MemoryRegion>> LoopbackTransport::allocate_mappable(std::size_t bytes) {
  const std::size_t mapped = std::max(bytes, std::size_t{1});
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return KOLO_ERROR(kOutOfMemory, "rank {}: cannot allocate {} bytes that peers can map", rank_,
                      bytes);
  }
  auto pages = std::make_shared<Pages>(static_cast<std::byte*>(memory), mapped, bytes);
  std::string key = key_of(hub_.offer_memory(pages));
  return std::unique_ptr<MemoryRegion>(
      std::make_unique<AllocatedRegion>(std::move(pages), std::move(key)));
}

Result<std::unique_ptr<MemoryRegion>> LoopbackTransport::register_memory(std::span<std::byte> bytes,
                                                                         MemoryType type) {
  if (type != MemoryType::kHost)
    return KOLO_ERROR(kUnsupported, "the loopback transport moves host memory alone");
  return std::unique_ptr<MemoryRegion>(std::make_unique<BorrowedRegion>(bytes));
}

Result<std::string> LoopbackTransport::reach_device(std::span<std::byte> /*memory*/) {
  return KOLO_ERROR(kUnsupported, "the loopback transport moves host memory alone");
}

Result<std::unique_ptr<PeerMapping>> LoopbackTransport::map_peer(int peer, std::string_view key) {
  KOLO_TRY(check_peer(peer));
  std::uint64_t number = 0;
  std::shared_ptr<Pages> pages;
  if (key.starts_with(kKeyName) && key.size() == kKeyName.size() + sizeof(number)) {
    std::memcpy(&number, key.data() + kKeyName.size(), sizeof(number));
    pages = std::static_pointer_cast<Pages>(hub_.memory_of(number));
  }
  if (pages == nullptr) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: what rank {} sent is no key of loopback memory",
                      rank_, peer);
  }
  return std::unique_ptr<PeerMapping>(std::make_unique<LoopbackMapping>(std::move(pages)));
}

}  // namespace kolo
