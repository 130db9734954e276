// The memory of LoopbackTransport: ranks share one address space, so every region of a rank is
// mapped already, and a key is no more than where it lies.
#include "runtime/base/check.h"
#include "transport/loopback/loopback_transport.h"

#include <sys/mman.h>
#include <algorithm>
#include <array>
#include <cstring>

namespace kolo {
namespace {

constexpr std::string_view kKeyName = "loopback memory ";

/// Anonymous pages: zeroed, aligned, and refused rather than fatal where a size is absurd.
struct UnmapPages {
  std::size_t size = 0;
  void operator()(std::byte* memory) const { munmap(memory, size); }
};
using Pages = std::unique_ptr<std::byte, UnmapPages>;

std::string key_of(std::span<std::byte> bytes) {
  const std::array<std::uint64_t, 2> place{reinterpret_cast<std::uintptr_t>(bytes.data()),
                                           bytes.size()};
  std::string key(kKeyName);
  key.append(reinterpret_cast<const char*>(place.data()), sizeof(place));
  return key;
}

class AllocatedRegion final : public MemoryRegion {
 public:
  AllocatedRegion(Pages memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}
  std::span<std::byte> bytes() const override { return {memory_.get(), size_}; }
  std::string key() const override { return key_of(bytes()); }

 private:
  Pages memory_;
  std::size_t size_;
};

class BorrowedRegion final : public MemoryRegion {
 public:
  explicit BorrowedRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  std::string key() const override { return key_of(bytes_); }

 private:
  std::span<std::byte> bytes_;
};

class LoopbackMapping final : public PeerMapping {
 public:
  explicit LoopbackMapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace

Result<std::unique_ptr<MemoryRegion>> LoopbackTransport::allocate_mappable(std::size_t bytes) {
  const std::size_t mapped = std::max(bytes, std::size_t{1});
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return KOLO_ERROR(kOutOfMemory, "rank {}: cannot allocate {} bytes that peers can map", rank_,
                      bytes);
  }
  Pages pages(static_cast<std::byte*>(memory), UnmapPages{.size = mapped});
  return std::unique_ptr<MemoryRegion>(std::make_unique<AllocatedRegion>(std::move(pages), bytes));
}

Result<std::unique_ptr<MemoryRegion>> LoopbackTransport::register_memory(
    std::span<std::byte> bytes) {
  return std::unique_ptr<MemoryRegion>(std::make_unique<BorrowedRegion>(bytes));
}

Result<std::unique_ptr<PeerMapping>> LoopbackTransport::map_peer(int peer, std::string_view key) {
  KOLO_TRY(check_peer(peer));
  std::array<std::uint64_t, 2> place{};
  if (!key.starts_with(kKeyName) || key.size() != kKeyName.size() + sizeof(place)) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: what rank {} sent is no key of loopback memory",
                      rank_, peer);
  }
  std::memcpy(place.data(), key.data() + kKeyName.size(), sizeof(place));
  return std::unique_ptr<PeerMapping>(std::make_unique<LoopbackMapping>(
      std::span(reinterpret_cast<std::byte*>(place[0]), place[1])));
}

}  // namespace kolo
