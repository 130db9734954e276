#include "tests/support/emulated_accelerator.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace kolo::test {
namespace {

/// Makes an address that no processor accepts: bits 47 to 63 of a valid one are equal.
constexpr std::uintptr_t kTag = std::uintptr_t{1} << 62;

bool is_tagged(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & kTag) != 0;
}

std::byte* tagged(std::byte* memory) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(memory) | kTag);
}

/// Ranges of host memory that devices reach.
class PinnedRanges {
 public:
  static PinnedRanges& all() {
    static PinnedRanges& ranges = *new PinnedRanges;  // threads may outlive exit()
    return ranges;
  }
  void add(std::span<std::byte> range) {
    const std::lock_guard lock(mutex_);
    ranges_.emplace_back(range);
  }
  void remove(std::span<std::byte> range) {
    const std::lock_guard lock(mutex_);
    for (auto i = ranges_.begin(); i != ranges_.end(); ++i) {
      if (i->data() != range.data()) continue;
      ranges_.erase(i);
      return;
    }
  }
  bool hold(const std::byte* begin, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (const auto& range : ranges_)
      if (begin >= range.data() && begin + bytes <= range.data() + range.size()) return true;
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<std::span<std::byte>> ranges_;
};

/// An allocation and the number of its imports. It stays although its owner frees it, so that the
/// test reports the error and does not crash.
struct Allocation {
  explicit Allocation(std::size_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
  std::weak_ptr<EmulatedDevice> device;
  std::atomic<int> imports = 0;
};

/// Memory that can be imported.
class Exported {
 public:
  using Owned = std::shared_ptr<Allocation>;
  static Exported& all() {
    static Exported& exported = *new Exported;  // threads may outlive exit()
    return exported;
  }
  void add(const std::byte* begin, const Owned& owned) {
    const std::lock_guard lock(mutex_);
    owned_[begin] = owned;
  }
  Owned find(const std::byte* begin) {
    const std::lock_guard lock(mutex_);
    return owned_[begin].lock();
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<Allocation>> owned_;
};

}  // namespace

/// A thread that does its work in order. Events and users of its handle keep it alive.
class Queue {
 public:
  explicit Queue(std::shared_ptr<EmulatedDevice> device)
      : device_(std::move(device)), thread_([this] { run(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void give(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
      ++given_;
    }
    changed_.notify_all();
  }
  /// Amount of work that the stream was given so far.
  std::uint64_t given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  void await(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number; });
  }
  EmulatedDevice& device() { return *device_; }
  const std::shared_ptr<EmulatedDevice>& shared_device() { return device_; }

 private:
  void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
      {
        const std::lock_guard lock(mutex_);
        ++done_;
      }
      changed_.notify_all();
    }
  }

  const std::shared_ptr<EmulatedDevice> device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

namespace {

Error fault() {
  return KOLO_ERROR(kDevice, "the emulated device has failed: an illegal memory access");
}

class Event final : public DeviceEvent {
 public:
  Event(std::shared_ptr<Queue> queue, std::uint64_t number)
      : queue_(std::move(queue)), number_(number) {}

  Result<bool> is_done() const override {
    if (queue_->device().failed()) return fault();
    return queue_->has_done(number_);
  }
  Status synchronize() const override {
    queue_->await(number_);
    return queue_->device().failed() ? Status(fault()) : Status();
  }
  Status order(void* native_stream) const override {
    if (*static_cast<std::shared_ptr<Queue>*>(native_stream) == queue_) return {};
    EmulatedAccelerator::give(native_stream,
                              [queue = queue_, number = number_] { queue->await(number); });
    return {};
  }

 private:
  const std::shared_ptr<Queue> queue_;
  const std::uint64_t number_;
};

class Stream final : public DeviceStream {
 public:
  explicit Stream(std::shared_ptr<EmulatedDevice> device, Accelerator& accelerator)
      : accelerator_(accelerator), queue_(std::make_shared<Queue>(std::move(device))) {}

  Accelerator& accelerator() override { return accelerator_; }

  Status combine(const Combination& what, const PieceList& pieces) override {
    std::vector<const std::byte*> sources(pieces.sources.begin(), pieces.sources.end());
    std::vector<std::byte*> destinations(pieces.destinations.begin(), pieces.destinations.end());
    std::vector<std::uint64_t> counts(pieces.counts.begin(), pieces.counts.end());
    KOLO_CHECK(sources.size() == counts.size() * what.sources);
    KOLO_CHECK(destinations.size() == counts.size() * what.destinations);
    count_pieces(what, pieces);
    return give([queue = queue_.get(), what, sources = std::move(sources),
                 destinations = std::move(destinations), counts = std::move(counts)]() mutable {
      for (std::size_t piece = 0; piece < counts.size(); ++piece) {
        const std::span from(sources.data() + piece * what.sources, what.sources);
        const std::span to(destinations.data() + piece * what.destinations, what.destinations);
        for (const std::byte* address : from) queue->device().await_reads_of(address);
        for (const std::byte* address : to) queue->device().await_writes_to(address);
        if (!reach(what, from, to, counts[piece])) return queue->device().fail();
        combine_piece(what, from, to, counts[piece]);
      }
    });
  }

  Status adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                std::size_t count) override {
    return give([=] {
      host_device().adasum(type, EmulatedAccelerator::behind(destination),
                           EmulatedAccelerator::behind(a), EmulatedAccelerator::behind(b), count);
    });
  }

  Status copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    return give([=, queue = queue_.get()] {
      queue->device().await_reads_of(source);
      queue->device().await_writes_to(destination);
      std::memcpy(EmulatedAccelerator::behind(destination), EmulatedAccelerator::behind(source),
                  bytes);
    });
  }

  Status zero(std::byte* memory, std::size_t bytes) override {
    return give([=] { std::memset(EmulatedAccelerator::behind(memory), 0, bytes); });
  }

  Status wait(const DeviceEvent& event) override { return event.order(native()); }

  /// Also if the device has failed: its current work must be over before memory is freed.
  Result<std::shared_ptr<DeviceEvent>> record() override {
    return std::shared_ptr<DeviceEvent>(std::make_shared<Event>(queue_, queue_->given()));
  }

  void* native() const override {
    return const_cast<std::shared_ptr<Queue>*>(&queue_);  // the handle's target
  }

 private:
  Status give(std::function<void()> work) {
    if (queue_->device().failed()) return fault();
    queue_->give(std::move(work));
    return {};
  }

  void count_pieces(const Combination& what, const PieceList& pieces) {
    const auto phase = [](const std::byte* address) {
      return reinterpret_cast<std::uintptr_t>(address) % 16;
    };
    for (std::size_t piece = 0; piece < pieces.counts.size(); ++piece) {
      const auto from = pieces.sources.subspan(piece * what.sources, what.sources);
      const auto to = pieces.destinations.subspan(piece * what.destinations, what.destinations);
      const auto is_unlike = [&](const std::byte* a) { return phase(a) != phase(from.front()); };
      const bool unlike = std::any_of(from.begin(), from.end(), is_unlike) ||
                          std::any_of(to.begin(), to.end(), is_unlike);
      ++queue_->device().pieces().all;
      if (what.sources == 1) ++queue_->device().pieces().copies;
      if (unlike) ++queue_->device().pieces().unlike;
    }
  }

  static bool reach(const Combination& what, std::span<const std::byte*> sources,
                    std::span<std::byte*> destinations, std::uint64_t count) {
    const auto reaches = [&](const std::byte* address, DataType type) {
      return is_tagged(address) || PinnedRanges::all().hold(address, count * size_of(type));
    };
    for (const std::byte*& source : sources) {
      if (!reaches(source, what.source_type.value_or(what.type))) return false;
      source = EmulatedAccelerator::behind(source);
    }
    for (std::byte*& destination : destinations) {
      if (!reaches(destination, what.type)) return false;
      destination = EmulatedAccelerator::behind(destination);
    }
    return true;
  }

  static void combine_piece(const Combination& what, std::span<const std::byte*> sources,
                            std::span<std::byte*> destinations, std::uint64_t count) {
    const Device& host = host_device();
    std::vector<std::vector<std::byte>> scaled;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if ((what.prescaled >> i & 1) == 0) continue;
      auto& memory = scaled.emplace_back(count * size_of(what.type));
      host.copy(what.type, memory.data(), sources[i], count, what.prescale);
      sources[i] = memory.data();
    }
    if (const DataType from = what.source_type.value_or(what.type); from != what.type) {
      KOLO_CHECK(what.prescaled == 0);
      std::vector<TypedSource> typed;
      for (const std::byte* const source : sources) typed.push_back({source, from});
      host.reduce_mixed(what.type, what.op, destinations, typed, count, what.postscale);
      return;
    }
    if (sources.size() > 1) {
      host.reduce(what.type, what.op, destinations, sources, count, what.postscale,
                  Stores::kCached);
      return;
    }
    for (std::byte* destination : destinations)
      host.copy(what.type, destination, sources[0], count, what.postscale);
  }

  Accelerator& accelerator_;
  const std::shared_ptr<Queue> queue_;
};

class Memory final : public DeviceMemory {
 public:
  explicit Memory(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~Memory() override {
    if (pinned_) PinnedRanges::all().remove(bytes_);
    if (allocated_ != nullptr) *allocated_ -= bytes_.size();
    if (owner_ != nullptr && owned->imports > 0) ++owner_->freed_too_early();
    if (exporter_ == nullptr) return;
    --owned->imports;
    --exporter_->imports();
    exporter_->imports().notify_all();
  }
  std::span<std::byte> bytes() const override { return bytes_; }

  /// The device's own memory, zeroed.
  std::shared_ptr<Allocation> owned;
  std::shared_ptr<std::atomic<std::size_t>> allocated_;  ///< the counter of allocated bytes
  std::shared_ptr<EmulatedDevice> owner_;                ///< for memory that others may import
  std::shared_ptr<EmulatedDevice> exporter_;             ///< for imported memory
  bool pinned_ = false;

 private:
  const std::span<std::byte> bytes_;
};

std::unique_ptr<Memory> make_memory(std::size_t bytes, bool on_device) {
  auto owned = std::make_shared<Allocation>(bytes);
  std::byte* const begin = on_device ? tagged(owned->bytes.data()) : owned->bytes.data();
  auto memory = std::make_unique<Memory>(std::span(begin, bytes));
  memory->owned = std::move(owned);
  return memory;
}

}  // namespace

EmulatedAccelerator::EmulatedAccelerator(std::shared_ptr<EmulatedDevice> device, int ordinal)
    : device_(std::move(device)),
      allocated_(std::make_shared<std::atomic<std::size_t>>(0)),
      pinned_(std::make_shared<std::atomic<std::size_t>>(0)) {
  info_ = {.ordinal = ordinal, .uuid = device_->uuid(), .name = "emulation by threads"};
}

EmulatedAccelerator::~EmulatedAccelerator() = default;

Result<std::unique_ptr<DeviceStream>> EmulatedAccelerator::new_stream() {
  auto stream = std::make_unique<Stream>(device_, *this);
  const std::lock_guard lock(mutex_);
  queues_.push_back(*static_cast<std::shared_ptr<Queue>*>(stream->native()));
  return std::unique_ptr<DeviceStream>(std::move(stream));
}

Status EmulatedAccelerator::synchronize() {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const auto& queue) { return queue.expired(); });
    for (const auto& queue : queues_)
      if (auto held = queue.lock()) queues.push_back(std::move(held));
  }
  for (const auto& queue : queues) queue->await(queue->given());
  return device_->failed() ? Status(fault()) : Status();
}

Status EmulatedAccelerator::take_network_writes() {
  if (device_->failed()) return fault();
  device_->take_network_writes();
  return {};
}

Result<std::shared_ptr<DeviceEvent>> EmulatedAccelerator::record(void* native_stream) {
  if (device_->failed()) return fault();
  const auto& queue = *static_cast<std::shared_ptr<Queue>*>(native_stream);
  return std::shared_ptr<DeviceEvent>(std::make_shared<Event>(queue, queue->given()));
}

void EmulatedAccelerator::give(void* native_stream, std::function<void()> work) {
  (*static_cast<std::shared_ptr<Queue>*>(native_stream))->give(std::move(work));
}

Result<std::unique_ptr<DeviceMemory>> EmulatedAccelerator::allocate(std::size_t bytes) {
  auto memory = make_memory(bytes, true);
  *allocated_ += bytes;
  memory->allocated_ = allocated_;
  memory->owner_ = device_;
  memory->owned->device = device_;
  Exported::all().add(memory->bytes().data(), memory->owned);
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

Result<std::unique_ptr<DeviceMemory>> EmulatedAccelerator::pin(std::span<std::byte> host) {
  auto memory = std::make_unique<Memory>(host);
  memory->pinned_ = true;
  PinnedRanges::all().add(host);
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

Result<std::unique_ptr<DeviceMemory>> EmulatedAccelerator::allocate_pinned(std::size_t bytes) {
  auto memory = make_memory(bytes, false);
  *pinned_ += bytes;
  memory->allocated_ = pinned_;
  memory->pinned_ = true;
  ++pinned_blocks_;
  PinnedRanges::all().add(memory->bytes());
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

// Ranks are threads of one process, so the key is the memory itself.
Result<std::string> EmulatedAccelerator::export_memory(const DeviceMemory& memory) {
  const auto bytes = memory.bytes();
  std::string key(sizeof bytes + 1, '\0');
  std::memcpy(key.data(), &bytes, sizeof bytes);
  key.back() = device_->can_import() ? 'y' : 'n';
  return key;
}

Result<std::unique_ptr<DeviceMemory>> EmulatedAccelerator::import_memory(std::string_view key) {
  std::span<std::byte> bytes;
  KOLO_CHECK(key.size() == sizeof bytes + 1);
  if (key.back() != 'y')
    return KOLO_ERROR(kUnsupported, "the emulated devices cannot reach each other");
  std::memcpy(&bytes, key.data(), sizeof bytes);
  if (device_->leads_astray()) return allocate(bytes.size());
  auto memory = std::make_unique<Memory>(bytes);
  memory->owned = Exported::all().find(bytes.data());
  if (memory->owned == nullptr)
    return KOLO_ERROR(kDevice, "the memory is no longer there that was to be imported");
  memory->exporter_ = memory->owned->device.lock();
  ++memory->owned->imports;
  ++memory->exporter_->imports();
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

MemoryLocation EmulatedAccelerator::location_of(const void* address) {
  if (is_tagged(address)) return MemoryLocation::kDevice;
  const bool pinned = PinnedRanges::all().hold(static_cast<const std::byte*>(address), 1);
  return pinned ? MemoryLocation::kPinnedHost : MemoryLocation::kHost;
}

std::byte* EmulatedAccelerator::behind(const std::byte* address) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) & ~kTag);
}

}  // namespace kolo::test
