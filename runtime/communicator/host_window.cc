#include "runtime/communicator/host_window.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kPage = 4096;
/// Less than this a rank is not worth the trouble.
constexpr std::size_t kSmallest = HostWindow::kSlots * 16 * kPage;

}  // namespace

/// What a rank tells the others of its window.
struct HostWindow::Offer {
  std::size_t bytes = 0;
  std::string key = {};
  std::string error = {};  ///< why there is none

  std::string encode() const { return join_fields({std::to_string(bytes), key, error}); }
  static Result<Offer> decode(std::string_view blob, int rank) {
    std::vector<std::string> fields;
    Offer offer;
    if (split_fields(blob, fields) && fields.size() == 3) {
      const char* const end = fields[0].data() + fields[0].size();
      if (std::from_chars(fields[0].data(), end, offer.bytes).ptr == end) {
        offer.key = std::move(fields[1]);
        offer.error = std::move(fields[2]);
        return offer;
      }
    }
    return KOLO_ERROR(kInternal, "rank {} sent no offer of shared memory", rank);
  }
};

HostWindow::HostWindow() = default;
HostWindow::~HostWindow() = default;

Status HostWindow::offer(Transport& transport, std::size_t bytes, Offer& mine) {
  // Containers often have little room for shared memory: a smaller window serves as well.
  Status status;
  for (std::size_t size = bytes; size >= kSmallest; size /= 2) {
    auto region = transport.allocate_mappable(kBoardBytes + size);
    if (region.ok()) {
      own_ = *std::move(region);
      std::memset(own_->bytes().data(), 0, kBoardBytes);
      mine.bytes = size;
      mine.key = own_->key();
      return {};
    }
    status = std::move(region).error();
    if (status.error().code != ErrorCode::kOutOfMemory) break;
  }
  if (status.ok()) {
    status =
        KOLO_ERROR(kInvalidArgument, "KOLO_SHARED_MEMORY={} is less than {}", bytes, kSmallest);
  }
  return status;
}

Status HostWindow::map(Transport& transport, const World& world, const std::vector<Offer>& offers) {
  windows_.assign(offers.size(), {});
  std::size_t smallest = SIZE_MAX;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    const auto index = static_cast<std::size_t>(rank);
    const Offer& offer = offers[index];
    if (!offer.error.empty()) return KOLO_ERROR(kUnsupported, "rank {}: {}", rank, offer.error);
    smallest = std::min(smallest, offer.bytes);
    if (rank == world.rank()) {
      windows_[index] = own_->bytes();
      continue;
    }
    KOLO_ASSIGN(auto mapping, transport.map_peer(rank, offer.key));
    windows_[index] = mapping->bytes();
    mappings_.push_back(std::move(mapping));
  }
  slot_bytes_ = smallest / kSlots / kPage * kPage;
  return {};
}

Status HostWindow::open(Bootstrap& bootstrap, Transport& transport, const World& world,
                        std::size_t bytes, const Log& log, Deadline deadline) {
  if (bytes == 0 || world.size() == 1) return {};
  Offer mine;
  if (world.local_size() > 1) {
    if (const Status offered = offer(transport, bytes, mine); !offered.ok()) {
      mine.error = offered.error().message;
    }
  }
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("shared memory", mine.encode(), deadline));
  std::vector<Offer> offers;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    KOLO_ASSIGN(Offer offer, Offer::decode(blobs[rank], static_cast<int>(rank)));
    offers.push_back(std::move(offer));
  }
  Status mapped;
  if (world.local_size() > 1) mapped = map(transport, world, offers);
  KOLO_ASSIGN(const auto outcomes,
              bootstrap.exchange("shared memory mapped",
                                 mapped.ok() ? std::string() : mapped.error().message, deadline));
  // One rank that cannot would leave the others waiting: then none on this host does.
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& why = outcomes[static_cast<std::size_t>(rank)];
    if (why.empty() || !world.same_host(rank, world.rank())) continue;
    if (world.local_rank() == 0) {
      log.warning(
          "host {}: no memory is shared between its {} ranks ({}); all-reduces inside it take "
          "slower messages. Give it room (/dev/shm), or KOLO_SHARED_MEMORY=0 to expect this",
          world.info(world.rank()).hostname, world.local_size(), why);
    }
    close();
    return {};
  }
  for (int i = slot_bytes_ > 0 ? kSlots : 0; i > 0; --i)
    free_slots_.push_back(kBoardBytes + static_cast<std::size_t>(i - 1) * slot_bytes_);
  return {};
}

void HostWindow::close() {
  windows_.clear();
  mappings_.clear();
  own_.reset();
  free_slots_.clear();
  slot_bytes_ = 0;
}

bool HostWindow::covers(const Communicator& communicator) const {
  if (slot_bytes_ == 0) return false;
  const auto& ranks = communicator.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
    return !windows_[static_cast<std::size_t>(rank)].empty();
  });
}

std::size_t HostWindow::take_slot() {
  KOLO_CHECK(!free_slots_.empty());
  const std::size_t offset = free_slots_.back();
  free_slots_.pop_back();
  return offset;
}

void HostWindow::give_back_slot(std::size_t offset) { free_slots_.push_back(offset); }

}  // namespace kolo
