#include "runtime/communicator/device_window.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kAlignment = 4096;
/// More sources than a device adds up at once.
constexpr int kMostRanks = 32;

}  // namespace

/// What a rank tells the others of its device.
struct DeviceWindow::Offer {
  std::string uuid = {};  ///< empty: it has none
  std::string key = {};
  std::string error = {};  ///< why there is no memory of it

  std::string encode() const { return join_fields({uuid, key, error}); }
  static Result<Offer> decode(std::string_view blob, int rank) {
    std::vector<std::string> fields;
    if (!split_fields(blob, fields) || fields.size() != 3)
      return KOLO_ERROR(kInternal, "rank {} sent no offer of device memory", rank);
    return Offer{std::move(fields[0]), std::move(fields[1]), std::move(fields[2])};
  }
};

DeviceWindow::DeviceWindow() = default;
DeviceWindow::~DeviceWindow() { close(); }

void DeviceWindow::close() {
  windows_.clear();
  imported_.clear();
  own_.reset();
  free_slots_.clear();
  slot_bytes_ = 0;
}

Status DeviceWindow::map(const World& world, const std::vector<Offer>& offers) {
  if (world.local_size() > kMostRanks)
    return KOLO_ERROR(kUnsupported, "there are {} ranks, more than {}", world.local_size(),
                      kMostRanks);
  for (int rank = 0; rank < world.size(); ++rank) {
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    if (!world.same_host(rank, world.rank())) continue;
    if (offer.uuid.empty()) return KOLO_ERROR(kUnsupported, "rank {} has no CUDA device", rank);
    if (!offer.error.empty()) return KOLO_ERROR(kUnsupported, "rank {}: {}", rank, offer.error);
  }
  windows_.assign(offers.size(), {});
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    const auto index = static_cast<std::size_t>(rank);
    if (rank == world.rank()) {
      windows_[index] = own_->bytes();
      continue;
    }
    KOLO_ASSIGN(auto memory, accelerator_->import_memory(offers[index].key));
    windows_[index] = memory->bytes();
    imported_.push_back(std::move(memory));
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    const auto same = [&](int other) {
      return world.same_host(other, rank) && offers[static_cast<std::size_t>(other)].uuid ==
                                                 offers[static_cast<std::size_t>(rank)].uuid;
    };
    int lowest = 0;
    while (!same(lowest)) ++lowest;
    if (lowest == rank) leaders_.push_back(rank);
  }
  if (leaders_.size() == static_cast<std::size_t>(world.local_size())) leaders_.clear();
  return {};
}

Status DeviceWindow::open(Bootstrap& bootstrap, std::unique_ptr<Accelerator> accelerator,
                          std::string reason, const World& world, std::size_t bytes, const Log& log,
                          Deadline deadline) {
  accelerator_ = std::move(accelerator);
  no_accelerator_ = std::move(reason);
  if (bytes == 0 || world.size() == 1) return {};
  Offer mine;
  if (accelerator_ != nullptr) {
    mine.uuid = to_string(accelerator_->info().uuid);
    const auto offer = [&]() -> Status {
      KOLO_ASSIGN(own_, accelerator_->allocate(bytes));
      KOLO_ASSIGN(mine.key, accelerator_->export_memory(*own_));
      return {};
    };
    if (world.local_size() > 1) {
      if (const Status offered = offer(); !offered.ok()) mine.error = offered.error().message;
    }
  }
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("device memory", mine.encode(), deadline));
  std::vector<Offer> offers;
  bool any = false;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    KOLO_ASSIGN(Offer offer, Offer::decode(blobs[rank], static_cast<int>(rank)));
    any |= !offer.uuid.empty() && world.same_host(static_cast<int>(rank), world.rank());
    offers.push_back(std::move(offer));
  }
  Status mapped;
  const bool wanted = any && world.local_size() > 1;
  if (wanted) mapped = map(world, offers);
  KOLO_ASSIGN(const auto outcomes,
              bootstrap.exchange("device memory mapped",
                                 mapped.ok() ? std::string() : mapped.error().message, deadline));
  everywhere_ = wanted && world.local_size() == world.size();
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& why = outcomes[static_cast<std::size_t>(rank)];
    if (why.empty() || !world.same_host(rank, world.rank())) continue;
    everywhere_ = false;
    close();
    if (world.local_rank() == 0)
      log.info(
          "host {}: its ranks do not map each other's device memory ({}); what is on devices "
          "passes through the host's memory",
          world.info(world.rank()).hostname, why);
    return {};
  }
  if (!wanted) return {};
  slot_bytes_ = bytes / HostWindow::kSlots / kAlignment * kAlignment;
  for (std::size_t i = HostWindow::kSlots; i > 0; --i) free_slots_.push_back((i - 1) * slot_bytes_);
  return {};
}

bool DeviceWindow::covers(const Communicator& communicator) const {
  return everywhere_ && slot_bytes_ > 0 && communicator.id() == 0;
}

std::size_t DeviceWindow::take_slot() {
  KOLO_CHECK(!free_slots_.empty());
  const std::size_t offset = free_slots_.back();
  free_slots_.pop_back();
  return offset;
}

void DeviceWindow::give_back_slot(std::size_t offset) { free_slots_.push_back(offset); }

}  // namespace kolo
