#include "runtime/memory/device_window.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/memory/device_stamp.h"
#include "runtime/memory/offers.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kAlignment = 4096;
/// A device combines at most this many sources at once (Combination::sources).
constexpr int kMostRanks = 32;
/// The arena's size is halved until it fits, down to this size; then there is none.
constexpr std::size_t kSmallestArena = 4 << 20;
/// Ranks that end at the same time are only milliseconds apart.
constexpr std::chrono::milliseconds kUnmapTimeout{1000};
constexpr std::chrono::milliseconds kNotAtAll{0};
/// Time to read a few bytes of each device of the host.
constexpr std::chrono::seconds kLongestLook{10};

/// Keeps the memory until the process ends.
void keep_to_the_end(std::shared_ptr<DeviceMemory> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<DeviceMemory>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

/// What a rank tells the others about its device.
struct DeviceWindow::Offer {
  std::string uuid = {};  ///< empty: the rank has no device
  std::string key = {};
  std::string error = {};  ///< why the rank offers no memory of its device
  DeviceNetworkAnswer network = {};

  std::string encode() const {
    return join_fields({uuid, key, error, network.works ? "y" : "n", network.reason});
  }
  static Result<Offer> decode(std::string_view blob, int rank) {
    std::vector<std::string> fields;
    if (!split_fields(blob, fields) || fields.size() != 5)
      return KOLO_ERROR(kInternal, "rank {} sent no offer of device memory", rank);
    return Offer{std::move(fields[0]),
                 std::move(fields[1]),
                 std::move(fields[2]),
                 {fields[3] == "y", std::move(fields[4])}};
  }
};

DeviceWindow::DeviceWindow() = default;
DeviceWindow::~DeviceWindow() { close(); }

void DeviceWindow::close() {
  windows_.clear();
  imported_.clear();
  arena_.reset();
  const bool may_free = unmap_barrier_.part(own_ == nullptr ? kNotAtAll : kUnmapTimeout);
  if (!may_free && own_ != nullptr) keep_to_the_end(std::move(own_));
  own_.reset();
  for (auto& slots : free_slots_) slots.clear();
  slots_ = {};
}

// A device that is shared with others may have little memory left. The arena is optional, so shrink
// it first.
Status DeviceWindow::offer(Sizes sizes, Offer& mine) {
  const std::size_t slots = round_down(sizes.slots, kAlignment);
  for (std::size_t arena = round_down(sizes.arena, kAlignment);;) {
    auto memory = accelerator_->allocate(slots + arena);
    if (memory.ok()) {
      own_ = *std::move(memory);
      if (arena > 0) arena_ = std::make_shared<DeviceArena>(own_, slots);
      break;
    }
    if (arena == 0 || memory.error().code != ErrorCode::kOutOfMemory) return memory.error();
    arena = arena > kSmallestArena ? round_down(arena / 2, kAlignment) : 0;
  }
  KOLO_ASSIGN(mine.key, accelerator_->export_memory(*own_));
  return write_stamp(*accelerator_, own_->bytes(), mine.key);
}

Status DeviceWindow::agree_on_network(const std::string& mode, const std::vector<Offer>& offers) {
  std::vector<DeviceNetworkAnswer> answers;
  bool any = mode == "on";
  for (const Offer& offer : offers) {
    answers.push_back(offer.network);
    any |= !offer.uuid.empty();
  }
  if (!any) return {};  // there is no device at all
  KOLO_ASSIGN(network_, agree_on_device_network(mode, answers));
  return {};
}

Status DeviceWindow::map(const World& world, const std::vector<Offer>& offers, Deadline deadline) {
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
  std::vector<StampedMemory> peers;
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
    peers.push_back({rank, windows_[index], offers[index].key});
  }
  return check_stamps(*accelerator_, own_->bytes(), peers, deadline);
}

Status DeviceWindow::open(Bootstrap& bootstrap, std::unique_ptr<Accelerator> accelerator,
                          std::string reason, const World& world, const HostWindow& host,
                          Sizes sizes, const Network& network, const Log& log, Deadline deadline) {
  accelerator_ = std::move(accelerator);
  no_accelerator_ = std::move(reason);
  const bool asks_network = world.local_size() < world.size() && network.mode != "off";
  const bool wants_window = sizes.slots > 0 && world.size() > 1;
  describe_unused(world, sizes, asks_network);
  if (!wants_window && !asks_network) return {};
  const Offer mine =
      make_offer(sizes, network, asks_network, wants_window && world.local_size() > 1);
  KOLO_ASSIGN(const auto offers, exchange_offers(bootstrap, "device memory", mine, deadline));
  if (asks_network) KOLO_TRY(agree_on_network(network.mode, offers));
  if (!wants_window) return {};
  return open_window(bootstrap, world, host, sizes, offers, log, deadline);
}

void DeviceWindow::describe_unused(const World& world, Sizes sizes, bool asks_network) {
  if (accelerator_ == nullptr) return;
  if (world.local_size() < world.size() && !asks_network) network_ = device_network_switched_off();
  if (sizes.slots == 0 && world.local_size() > 1)
    inside_ = "passes through the host's memory: KOLO_DEVICE_MEMORY is 0";
}

Status DeviceWindow::open_window(Bootstrap& bootstrap, const World& world, const HostWindow& host,
                                 Sizes sizes, const std::vector<Offer>& offers, const Log& log,
                                 Deadline deadline) {
  Status mapped;
  const bool wanted = note_devices(world, offers) && world.local_size() > 1;
  if (wanted) {
    unmap_barrier_.open(host, world, log);
    mapped = map(world, offers, Deadline::after(kLongestLook));
  }
  KOLO_ASSIGN(const auto outcomes,
              bootstrap.exchange("device memory mapped",
                                 mapped.ok() ? std::string() : mapped.error().message, deadline));
  const bool all_mapped =
      std::none_of(offers.begin(), offers.end(), [](const Offer& o) { return o.uuid.empty(); }) &&
      std::all_of(outcomes.begin(), outcomes.end(), [](const auto& why) { return why.empty(); });
  // With two ranks, a further process set can only have one rank, and needs no slots.
  const bool has_sets = world.size() > 2;
  if (all_mapped) slots_of_hosts_ = slots_of(sizes.slots, has_sets);
  if (close_if_unmapped(world, outcomes, log) || !wanted) return {};
  describe_inside(world);
  lay_out(sizes.slots, has_sets);
  return {};
}

DeviceWindow::Offer DeviceWindow::make_offer(Sizes sizes, const Network& network, bool asks_network,
                                             bool wants_window) {
  Offer mine;
  if (accelerator_ == nullptr) {
    mine.network.reason = "it has no CUDA device: " + no_accelerator_;
    return mine;
  }
  mine.uuid = to_string(accelerator_->info().uuid);
  if (asks_network) mine.network = try_device_network(network.transport, *accelerator_);
  if (wants_window) {
    if (const Status offered = offer(sizes, mine); !offered.ok())
      mine.error = offered.error().message;
  }
  return mine;
}

bool DeviceWindow::note_devices(const World& world, const std::vector<Offer>& offers) {
  device_of_.assign(offers.size(), 0);
  bool host_has_devices = false;
  for (int rank = 0; rank < world.size(); ++rank)
    host_has_devices |=
        world.same_host(rank, world.rank()) && !offers[static_cast<std::size_t>(rank)].uuid.empty();
  // The lowest rank that has the device. Only a rank whose host has devices asks the table.
  std::map<std::pair<int, std::string>, int> lowest;
  for (int rank = 0; host_has_devices && rank < world.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const auto device = std::pair(world.layout().host_of(rank), offers[index].uuid);
    device_of_[index] = lowest.emplace(device, rank).first->second;
  }
  return host_has_devices;
}

bool DeviceWindow::close_if_unmapped(const World& world, const std::vector<std::string>& outcomes,
                                     const Log& log) {
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& why = outcomes[static_cast<std::size_t>(rank)];
    if (why.empty() || !world.same_host(rank, world.rank())) continue;
    close();
    inside_ = "passes through the host's memory: " + why;
    if (world.local_rank() == 0)
      log.warning(
          "host {}: its ranks do not map each other's device memory ({}); what is on devices "
          "passes through the host's memory",
          world.info(world.rank()).hostname, why);
    return true;
  }
  return false;
}

void DeviceWindow::describe_inside(const World& world) {
  std::set<int> devices;
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.same_host(rank, world.rank()))
      devices.insert(device_of_[static_cast<std::size_t>(rank)]);
  const bool by_turns = devices.size() < static_cast<std::size_t>(world.local_size()) &&
                        !accelerator_->info().is_served;
  inside_ =
      fmt::format("is mapped by all {} ranks of a host, on {} device{}{}", world.local_size(),
                  devices.size(), devices.size() == 1 ? "" : "s",
                  by_turns ? ", by turns (NVIDIA MPS lets ranks that share one run at once)" : "");
}

DeviceWindow::SlotBytes DeviceWindow::slots_of(std::size_t bytes, bool has_sets) {
  const std::size_t of_world = has_sets ? bytes / 2 : bytes;
  return {round_down(of_world / HostWindow::kSlots, kAlignment),
          round_down((bytes - of_world) / HostWindow::kSetSlots, kAlignment)};
}

void DeviceWindow::lay_out(std::size_t bytes, bool has_sets) {
  slots_ = slots_of(bytes, has_sets);
  const std::size_t sets_begin = HostWindow::kSlots * slots_.of_world;
  // take_slot() takes the last one first.
  for (std::size_t i = HostWindow::kSlots; i > 0; --i)
    free_slots_[0].push_back((i - 1) * slots_.of_world);
  for (std::size_t i = slots_.of_set > 0 ? HostWindow::kSetSlots : 0; i > 0; --i)
    free_slots_[1 + (i - 1) / HostWindow::kSlots].push_back(sets_begin + (i - 1) * slots_.of_set);
}

std::size_t DeviceWindow::slot_bytes_of_hosts(int partition) const {
  if (partition == HostWindow::kNoPartition) return 0;
  return partition == 0 ? slots_of_hosts_.of_world : slots_of_hosts_.of_set;
}

std::size_t DeviceWindow::slot_bytes(int partition) const {
  return partition == 0 ? slots_.of_world : slots_.of_set;
}

bool DeviceWindow::covers(const Communicator& communicator, int partition) const {
  if (partition == HostWindow::kNoPartition || slot_bytes(partition) == 0) return false;
  const auto& ranks = communicator.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
    return !windows_[static_cast<std::size_t>(rank)].empty();
  });
}

std::vector<int> DeviceWindow::device_leaders(const Communicator& communicator) const {
  std::vector<int> leaders;
  std::vector<int> devices;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const int world_rank = communicator.ranks()[static_cast<std::size_t>(rank)];
    const int device = device_of_[static_cast<std::size_t>(world_rank)];
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) continue;
    devices.push_back(device);
    leaders.push_back(rank);
  }
  if (leaders.size() == communicator.ranks().size()) leaders.clear();
  return leaders;
}

bool DeviceWindow::may_take_slot(int partition) const {
  return partition == HostWindow::kNoPartition || slot_bytes(partition) == 0 ||
         !free_slots_[static_cast<std::size_t>(partition)].empty();
}

std::size_t DeviceWindow::take_slot(int partition) {
  auto& free = free_slots_[static_cast<std::size_t>(partition)];
  KOLO_CHECK(!free.empty());
  const std::size_t offset = free.back();
  free.pop_back();
  return offset;
}

void DeviceWindow::give_back_slot(int partition, std::size_t offset) {
  free_slots_[static_cast<std::size_t>(partition)].push_back(offset);
}

}  // namespace kolo
