#include "bindings/core/world_splits.h"

#include "bindings/core/global.h"
#include "runtime/base/check.h"

#include <utility>

namespace kolo {
namespace {

std::vector<RankPlace> places_of(const World& world) {
  std::vector<RankPlace> places(static_cast<std::size_t>(world.size()));
  for (int host = 0; host < world.layout().hosts(); ++host) {
    int local = 0;
    for (const int rank : world.layout().members(host))
      places[static_cast<std::size_t>(rank)] = {rank, world.size(), host, local++};
  }
  return places;
}

/// Collective over the world: adds this rank's set. Returns the runtime's number of it.
Result<std::uint32_t> add_set(Runtime& runtime, const WorldSplits::Color& color) {
  std::vector<int> colors;
  for (const RankPlace& place : places_of(runtime.world())) colors.push_back(color(place));
  const int mine = colors[static_cast<std::size_t>(runtime.world().rank())];
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < colors.size(); ++rank)
    if (colors[rank] == mine) ranks.push_back(static_cast<int>(rank));
  // Two splits may have a set of the same ranks.
  KOLO_ASSIGN(const auto work, runtime.add_process_set(ranks, /*by_its_ranks=*/true));
  KOLO_TRY(work->wait());
  return static_cast<std::uint32_t>(work->outcome().value);
}

}  // namespace

std::size_t WorldSplits::size() const {
  const std::lock_guard lock(mutex_);
  return colors_.size();
}

Status WorldSplits::check_open() const {
  const std::lock_guard lock(mutex_);
  if (is_closed_) {
    return KOLO_ERROR(kInvalidArgument,
                      "kolo::split_world() was called within kolo::elastic::run() or after "
                      "kolo::newcomers(); call it before, so that a process that joins later has "
                      "the same sets");
  }
  if (colors_.size() < kMost) return {};
  return KOLO_ERROR(kUnsupported, "kolo::split_world(): a job has at most {} splits", kMost);
}

Result<std::uint32_t> WorldSplits::add(Runtime& runtime, const Color& color) {
  KOLO_TRY(check_open());
  KOLO_ASSIGN(const std::uint32_t number, add_set(runtime, color));
  const std::lock_guard lock(mutex_);
  const std::size_t index = colors_.size();
  colors_.push_back(color);
  numbers_.at(index).store(number, std::memory_order_release);
  return kFirstSplit + static_cast<std::uint32_t>(index);
}

void WorldSplits::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void WorldSplits::leave() {
  for (auto& number : numbers_) number.store(0, std::memory_order_release);
}

Status WorldSplits::enter(Runtime& runtime) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < colors_.size(); ++i) {
    KOLO_ASSIGN(const std::uint32_t number, add_set(runtime, colors_[i]));
    numbers_.at(i).store(number, std::memory_order_release);
  }
  return {};
}

void WorldSplits::clear() {
  leave();
  const std::lock_guard lock(mutex_);
  colors_.clear();
  is_closed_ = false;
}

std::uint32_t WorldSplits::number_of(std::uint32_t handle) const {
  const std::size_t index = handle - kFirstSplit;
  const std::uint32_t number =
      index < kMost ? numbers_.at(index).load(std::memory_order_acquire) : 0;
  return number != 0 ? number : handle;  // the runtime says that there is no such set
}

WorldSplits& world_splits() {
  static WorldSplits& instance = *new WorldSplits;  // never destroyed, like api.cc's global
  return instance;
}

std::uint32_t number_of_split(std::uint32_t handle) { return world_splits().number_of(handle); }

ProcessSet split_world(const std::function<int(const RankPlace&)>& color) {
  const RuntimeCall runtime = runtime_for("split_world");
  return ProcessSet(value_or_throw(world_splits().add(*runtime.operator->(), color)));
}

}  // namespace kolo
