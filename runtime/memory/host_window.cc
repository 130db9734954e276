#include "runtime/memory/host_window.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/base/page.h"
#include "runtime/base/rounding.h"
#include "runtime/memory/offers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

/// A smaller window is not worth the trouble.
constexpr std::size_t kSmallest = HostWindow::kSlots * 16 * kPage;
/// Bytes of a slot of a process set; its operations have a few blocks in flight.
constexpr std::size_t kSetSlotBytes = 1 << 20;
constexpr std::size_t kSegments = HostWindow::kPartitions * HostWindow::kControlSegmentBytes;
static_assert(kSegments % kPage == 0);

}  // namespace

/// What a rank tells the others about its window.
struct HostWindow::Offer {
  std::size_t slots = 0;  ///< bytes
  std::string key = {};
  std::string error = {};  ///< why there is no window

  std::string encode() const { return join_fields({std::to_string(slots), key, error}); }
  static Result<Offer> decode(std::string_view blob, int rank) {
    std::vector<std::string> fields;
    Offer offer;
    if (split_fields(blob, fields) && fields.size() == 3) {
      const char* const end = fields[0].data() + fields[0].size();
      if (std::from_chars(fields[0].data(), end, offer.slots).ptr == end) {
        offer.key = std::move(fields[1]);
        offer.error = std::move(fields[2]);
        return offer;
      }
    }
    return KOLO_ERROR(kInternal, "rank {} sent no offer of shared memory", rank);
  }
};

HostWindow::HostWindow(ReservedMemory reserved) : reserved_(std::move(reserved)) {}
HostWindow::~HostWindow() = default;

Status HostWindow::offer(Kind kind, Transport& transport, const World& world, Sizes sizes,
                         Offer& mine) {
  if (sizes.slots < kSmallest) {
    return KOLO_ERROR(kInvalidArgument, "KOLO_SHARED_MEMORY={} is less than {}", sizes.slots,
                      kSmallest);
  }
  // Containers often have little room for shared memory or for addresses; a smaller window works as
  // well.
  Status status;
  std::size_t arena = kind == Kind::kReserved ? round_down(sizes.arena, kPage) : 0;
  for (std::size_t slots = round_down(sizes.slots, kPage); slots >= kSmallest;) {
    const std::size_t fixed = kSegments + slots;
    // Only addresses; a partition gets memory when a process set takes it.
    const std::size_t sets = kSetSlots * kSetSlotBytes;
    auto region = kind == Kind::kReserved
                      ? reserved_.reserve(fixed + sets + arena, world.local_size())
                      : transport.allocate_mappable(fixed);
    status = region.ok() ? (*region)->commit(0, fixed) : Status(region.error());
    if (status.ok()) {
      own_ = *std::move(region);
      // Reserved memory is zero, and costs nothing until it is touched.
      if (kind == Kind::kAllocated) std::memset(own_->bytes().data(), 0, kSegments);
      if (arena > 0) arena_ = std::make_shared<SharedArena>(own_, fixed + sets);
      sets_begin_ = fixed;
      mine.slots = slots;
      mine.key = own_->key();
      return {};
    }
    if (status.error().code != ErrorCode::kOutOfMemory) break;
    if (!region.ok() && arena > slots) {
      arena = round_down(arena / 2, kPage);
    } else {
      slots = round_down(slots / 2, kPage);
    }
  }
  return status;
}

Status HostWindow::map(Kind kind, Transport& transport, const World& world,
                       const std::vector<Offer>& offers) {
  windows_.assign(offers.size(), {});
  std::size_t smallest = SIZE_MAX;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    const auto index = static_cast<std::size_t>(rank);
    const Offer& offer = offers[index];
    if (!offer.error.empty()) return KOLO_ERROR(kUnsupported, "rank {}: {}", rank, offer.error);
    smallest = std::min(smallest, offer.slots);
    if (rank == world.rank()) {
      windows_[index] = own_->bytes();
      continue;
    }
    KOLO_ASSIGN(auto mapping, kind == Kind::kReserved ? reserved_.map(rank, offer.key)
                                                      : transport.map_peer(rank, offer.key));
    windows_[index] = mapping->bytes();
    mappings_.push_back(std::move(mapping));
  }
  slot_bytes_ = round_down(smallest / kSlots, kPage);
  has_sets_ = kind == Kind::kReserved;
  return {};
}

Status HostWindow::open(Bootstrap& bootstrap, Transport& transport, const World& world, Sizes sizes,
                        const Log& log, Deadline deadline) {
  if (sizes.slots == 0 || world.size() == 1) return {};
  KOLO_ASSIGN(const bool reserved,
              open_as(Kind::kReserved, bootstrap, transport, world, sizes, log, deadline));
  if (!reserved) {
    KOLO_ASSIGN(const bool allocated,
                open_as(Kind::kAllocated, bootstrap, transport, world, sizes, log, deadline));
    static_cast<void>(allocated);  // a host without a window has logged so
  }
  // take_slot() takes the last one first.
  for (std::size_t i = slot_bytes_ > 0 ? kSlots : 0; i > 0; --i)
    free_slots_[0].push_back(kSegments + (i - 1) * slot_bytes_);
  for (std::size_t i = has_sets_ ? kSetSlots : 0; i > 0; --i)
    free_slots_[1 + (i - 1) / kSlots].push_back(sets_begin_ + (i - 1) * kSetSlotBytes);
  has_memory_ = {};
  if (slot_bytes_ > 0) {
    std::vector<ControlSegment*> segments(windows_.size());
    for (std::size_t rank = 0; rank < windows_.size(); ++rank)
      if (!windows_[rank].empty())
        segments[rank] = &control_segment_in(control_segment(static_cast<int>(rank), 0));
    users_memory_.open(world.rank(), std::move(segments));
  }
  return compare(bootstrap, world, deadline);
}

/// Every rank learns the smallest slot of any host.
Status HostWindow::compare(Bootstrap& bootstrap, const World& world, Deadline deadline) {
  constexpr std::string_view kAlone = "alone";  // no other rank on its host
  const std::string mine =
      world.local_size() > 1
          ? join_fields({std::to_string(slot_bytes(0)), std::to_string(slot_bytes(1))})
          : std::string(kAlone);
  KOLO_ASSIGN(const auto slots, bootstrap.exchange("slots of shared memory", mine, deadline));
  std::array<std::size_t, 2> least = {SIZE_MAX, SIZE_MAX};  // the world's, and process sets'
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == kAlone) continue;
    std::vector<std::string> fields;
    bool understood = split_fields(slots[rank], fields) && fields.size() == least.size();
    for (std::size_t i = 0; understood && i < least.size(); ++i) {
      const char* const end = fields[i].data() + fields[i].size();
      std::size_t bytes = 0;
      understood = std::from_chars(fields[i].data(), end, bytes).ptr == end;
      least[i] = std::min(least[i], bytes);
    }
    if (!understood)
      return KOLO_ERROR(kInternal, "rank {} sent no sizes of its shared memory: '{}'", rank,
                        slots[rank]);
  }
  const auto known = [](std::size_t bytes) { return bytes == SIZE_MAX ? 0 : bytes; };
  slot_bytes_everywhere_ = known(least[0]);
  set_slot_bytes_everywhere_ = known(least[1]);
  return {};
}

/// True if every host has a window now. On a host that has none, the ranks are as before the call.
Result<bool> HostWindow::open_as(Kind kind, Bootstrap& bootstrap, Transport& transport,
                                 const World& world, Sizes sizes, const Log& log,
                                 Deadline deadline) {
  const bool wanted = world.local_size() > 1 && own_ == nullptr;
  const std::string name = kind == Kind::kReserved ? "reserved memory" : "shared memory";
  Offer mine;
  if (wanted) {
    if (const Status offered = offer(kind, transport, world, sizes, mine); !offered.ok())
      mine.error = offered.error().message;
  }
  KOLO_ASSIGN(const auto offers, exchange_offers(bootstrap, name, mine, deadline));
  Status mapped;
  if (wanted) mapped = map(kind, transport, world, offers);
  KOLO_ASSIGN(const auto outcomes,
              bootstrap.exchange(name + " mapped",
                                 mapped.ok() ? std::string() : mapped.error().message, deadline));
  return !close_if_unmapped(kind, world, outcomes, log);
}

bool HostWindow::close_if_unmapped(Kind kind, const World& world,
                                   const std::vector<std::string>& outcomes, const Log& log) {
  bool everywhere = true;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& why = outcomes[static_cast<std::size_t>(rank)];
    if (why.empty()) continue;
    everywhere = false;
    // If one rank of this host cannot map, no rank of the host does: the others would wait for it.
    if (!world.same_host(rank, world.rank()) || (own_ == nullptr && windows_.empty())) continue;
    close();
    if (world.local_rank() != 0) continue;
    const std::string& host = world.info(world.rank()).hostname;
    if (kind == Kind::kReserved) {
      log.info("host {}: no memory can be reserved ({}); kolo::allocate() gives private memory",
               host, why);
    } else {
      log.warning(
          "host {}: no memory is shared between its {} ranks ({}); all-reduces inside it take "
          "slower messages. Give it room (/dev/shm), or KOLO_SHARED_MEMORY=0 to expect this",
          host, world.local_size(), why);
    }
  }
  return !everywhere;
}

void HostWindow::close() {
  windows_.clear();
  users_memory_.close();
  mappings_.clear();
  arena_.reset();
  own_.reset();
  for (auto& slots : free_slots_) slots.clear();
  has_sets_ = false;
  slot_bytes_ = 0;
  slot_bytes_everywhere_ = set_slot_bytes_everywhere_ = 0;
}

std::size_t HostWindow::slot_bytes(int partition) const {
  if (partition == 0) return slot_bytes_;
  return has_sets_ ? std::min(slot_bytes_, kSetSlotBytes) : 0;
}

bool HostWindow::covers(const Communicator& communicator, int partition) const {
  if (partition == kNoPartition || slot_bytes(partition) == 0) return false;
  const auto& ranks = communicator.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
    return !windows_[static_cast<std::size_t>(rank)].empty();
  });
}

Status HostWindow::commit_slots(int partition) {
  bool& has_memory = has_memory_[static_cast<std::size_t>(partition)];
  if (has_memory) return {};
  constexpr std::size_t kBytes = kSlots * kSetSlotBytes;
  const std::size_t offset = sets_begin_ + static_cast<std::size_t>(partition - 1) * kBytes;
  const Status status = own_->commit(offset, kBytes);
  has_memory = status.ok();
  return status;
}

std::size_t HostWindow::take_slot(int partition) {
  auto& free = free_slots_[static_cast<std::size_t>(partition)];
  KOLO_CHECK(!free.empty());
  const std::size_t offset = free.back();
  free.pop_back();
  return offset;
}

void HostWindow::give_back_slot(int partition, std::size_t offset) {
  free_slots_[static_cast<std::size_t>(partition)].push_back(offset);
}

}  // namespace kolo
