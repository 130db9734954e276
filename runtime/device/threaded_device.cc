#include "runtime/device/threaded_device.h"

#include "runtime/base/check.h"
#include "runtime/base/own_thread.h"
#include "runtime/base/relax.h"
#include "runtime/base/rounding.h"

#include <algorithm>

namespace kolo {
namespace {

/// Looks for the next task before a thread sleeps: about as long as waking it would take, so that
/// the blocks of one operation find it awake.
constexpr int kLooks = 2000;
/// In elements. Shares end on cache lines, and on whole vectors, for every type.
constexpr std::size_t kGranule = 64;

}  // namespace

struct ThreadedDevice::Task {
  enum class Kind { kCopy, kStream, kReduce, kReduceMixed } kind;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::span<std::byte* const> destinations;
  std::span<const std::byte* const> sources;
  std::size_t count = 0;
  Scale scale = {};
  Stores stores = Stores::kCached;
  std::span<const TypedSource> typed_sources = {};
};

ThreadedDevice::ThreadedDevice(const Device& inner, int threads)
    : inner_(inner), shares_(static_cast<std::size_t>(threads)) {
  KOLO_CHECK(threads > 0);
  for (std::size_t share = 1; share < shares_; ++share)
    threads_.push_back(own_thread([this, share] { work(share); }));
}

ThreadedDevice::~ThreadedDevice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  condition_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadedDevice::copy(DataType type, std::byte* destination, const std::byte* source,
                          std::size_t count, Scale scale) const {
  if (!is_worth_sharing(count * size_of(type)))
    return inner_.copy(type, destination, source, count, scale);
  run({Task::Kind::kCopy, type, ReduceOp::kSum, {&destination, 1}, {&source, 1}, count, scale});
}

void ThreadedDevice::stream(std::byte* destination, const std::byte* source,
                            std::size_t bytes) const {
  if (!is_worth_sharing(bytes)) return inner_.stream(destination, source, bytes);
  run({.kind = Task::Kind::kStream,
       .destinations = {&destination, 1},
       .sources = {&source, 1},
       .count = bytes});
}

void ThreadedDevice::reduce(DataType type, ReduceOp op, std::span<std::byte* const> destinations,
                            std::span<const std::byte* const> sources, std::size_t count,
                            Scale scale, Stores stores) const {
  if (!is_worth_sharing(count * size_of(type)))
    return inner_.reduce(type, op, destinations, sources, count, scale, stores);
  run({Task::Kind::kReduce, type, op, destinations, sources, count, scale, stores});
}

void ThreadedDevice::reduce_mixed(DataType target, ReduceOp op,
                                  std::span<std::byte* const> destinations,
                                  std::span<const TypedSource> sources, std::size_t count,
                                  Scale scale) const {
  if (!is_worth_sharing(count * size_of(target)))
    return inner_.reduce_mixed(target, op, destinations, sources, count, scale);
  run({.kind = Task::Kind::kReduceMixed,
       .type = target,
       .op = op,
       .destinations = destinations,
       .count = count,
       .scale = scale,
       .typed_sources = sources});
}

void ThreadedDevice::adasum(DataType type, std::byte* destination, const std::byte* a,
                            const std::byte* b, std::size_t count) const {
  inner_.adasum(type, destination, a, b, count);
}

void ThreadedDevice::run(const Task& task) const {
  const std::unique_lock hold(in_use_, std::try_to_lock);
  if (!hold.owns_lock()) return do_share(inner_, task, 0, 1);
  task_ = &task;
  at_work_.store(shares_ - 1, std::memory_order_relaxed);
  // Sequentially consistent, as is a sleeper's last look: at least one of the two sees the other.
  number_.fetch_add(1);
  if (asleep_.load() > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    condition_.notify_all();
  }
  do_share(inner_, task, 0, shares_);
  while (at_work_.load(std::memory_order_acquire) > 0) {
    for (int i = 0; i < kLooks && at_work_.load(std::memory_order_acquire) > 0; ++i) relax();
    if (at_work_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }
}

void ThreadedDevice::do_share(const Device& inner, const Task& task, std::size_t share,
                              std::size_t shares) {
  const std::size_t granules = ceil_div(task.count, kGranule);
  const auto border = [&](std::size_t i) {
    return std::min(granules * i / shares * kGranule, task.count);
  };
  const std::size_t begin = border(share);
  const std::size_t count = border(share + 1) - begin;
  if (count == 0) return;
  const std::size_t offset = begin * size_of(task.type);
  switch (task.kind) {
    case Task::Kind::kCopy:
      return inner.copy(task.type, task.destinations[0] + offset, task.sources[0] + offset, count,
                        task.scale);
    case Task::Kind::kStream:
      return inner.stream(task.destinations[0] + offset, task.sources[0] + offset, count);
    case Task::Kind::kReduce:
    case Task::Kind::kReduceMixed:
      break;
  }
  std::vector<std::byte*> destinations;
  for (std::byte* const destination : task.destinations)
    destinations.push_back(destination + offset);
  if (task.kind == Task::Kind::kReduceMixed) {
    std::vector<TypedSource> typed;
    for (const TypedSource& source : task.typed_sources)
      typed.push_back({source.data + begin * size_of(source.type), source.type});
    return inner.reduce_mixed(task.type, task.op, destinations, typed, count, task.scale);
  }
  std::vector<const std::byte*> sources;
  for (const std::byte* const source : task.sources) sources.push_back(source + offset);
  inner.reduce(task.type, task.op, destinations, sources, count, task.scale, task.stores);
}

bool ThreadedDevice::is_due(std::uint64_t done) const {
  return number_.load() != done || stopping_.load();
}

void ThreadedDevice::work(std::size_t share) {
  for (std::uint64_t done = 0;;) {
    for (int i = 0; i < kLooks && !is_due(done); ++i) relax();
    if (!is_due(done)) {
      std::unique_lock lock(mutex_);
      asleep_.fetch_add(1);
      condition_.wait(lock, [&] { return is_due(done); });
      asleep_.fetch_sub(1);
    }
    // Do a pending task before ending: its owner waits for it.
    if (number_.load() == done) return;
    ++done;
    do_share(inner_, *task_, share, shares_);
    at_work_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace kolo
