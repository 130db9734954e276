// ProcessGroupKolo: groups that torch.distributed describes, and their end. torch knows ranks of
// its default group, whose backend may be another one; a group of kolo then is a world of its
// members. User threads.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/work.h"
#include "bindings/core/regroup.h"

#include <kolo/c10d.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

namespace kolo {
namespace {

using c10d_binding::refuse;
using Description = ProcessGroupKolo::Description;

constexpr const char* kCall = "create";

/// The world that create() has begun last.
struct BegunWorld {
  std::mutex mutex;
  std::uint64_t number = 0;
  std::vector<std::int64_t> global_ranks;  ///< indexed by rank of the world
};

BegunWorld& begun_world() {
  static BegunWorld& world = *new BegunWorld;
  return world;
}

bool is_set(std::chrono::milliseconds timeout) {
  return timeout > kNoTimeout && timeout != kBackendDefaultTimeout;
}

void check(const Description& description) {
  const auto& ranks = description.global_ranks;
  if (description.size < 1 || description.rank < 0 || description.rank >= description.size) {
    refuse(kCall, fmt::format("there is no rank {} in a group of {} ranks", description.rank,
                              description.size));
  }
  if (ranks.empty()) return;
  if (ranks.size() != static_cast<std::size_t>(description.size)) {
    refuse(kCall, fmt::format("a group of {} ranks has the global ranks [{}]", description.size,
                              fmt::join(ranks, ", ")));
  }
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    refuse(kCall, fmt::format("the group's global ranks are [{}]; kolo numbers a group's ranks in "
                              "ascending order, so give sort_ranks=True",
                              fmt::join(ranks, ", ")));
  }
}

/// Makes the group's members the world. Precondition: kolo is not initialised.
void begin_world(const Description& description) {
  if (!description.store) refuse(kCall, "a group needs a store, over which its ranks meet");
  InitOptions options{.rank = description.rank,
                      .size = description.size,
                      .store = key_value_store(description.store),
                      .device = description.device};
  if (is_set(description.timeout))
    options.timeout = std::chrono::ceil<std::chrono::seconds>(description.timeout);
  init(options);
  BegunWorld& world = begun_world();
  const std::lock_guard lock(world.mutex);
  world.number = world_number();
  world.global_ranks = description.global_ranks;
  if (!world.global_ranks.empty()) return;
  world.global_ranks.resize(static_cast<std::size_t>(description.size));
  std::iota(world.global_ranks.begin(), world.global_ranks.end(), 0);
}

/// Global ranks of the world's ranks: as its group had them; equal ones if the program began it.
std::vector<std::int64_t> global_ranks_of_world() {
  BegunWorld& world = begun_world();
  const std::lock_guard lock(world.mutex);
  if (world.number == world_number()) return world.global_ranks;
  std::vector<std::int64_t> same(static_cast<std::size_t>(size()));
  std::iota(same.begin(), same.end(), 0);
  return same;
}

/// The process set of a group's members in the present world.
ProcessSet add_set_of(const Description& description) {
  if (description.global_ranks.empty()) {
    if (description.size == size() && description.rank == rank()) return {};
    refuse(kCall,
           fmt::format("this process is rank {} of {} in the default group, but kolo::init() "
                       "has made it rank {} of {}; begin both alike",
                       description.rank, description.size, rank(), size()));
  }
  const std::vector<std::int64_t> all = global_ranks_of_world();
  std::vector<int> members;
  for (const std::int64_t global : description.global_ranks) {
    const auto place = std::lower_bound(all.begin(), all.end(), global);
    if (place == all.end() || *place != global) {
      raise(
          ErrorCode::kUnsupported,
          fmt::format("c10d create: global rank {} of the group [{}] is not in kolo's world, "
                      "which has the global ranks [{}]: a process has one world of kolo; begin it "
                      "by a group of all ranks (init_process_group or new_group)",
                      global, fmt::join(description.global_ranks, ", "), fmt::join(all, ", ")));
    }
    members.push_back(static_cast<int>(place - all.begin()));
  }
  return add_process_set_by_its_ranks(members);
}

}  // namespace

c10::intrusive_ptr<ProcessGroupKolo> ProcessGroupKolo::create(const Description& description) {
  check(description);
  const bool begins = !is_initialized();
  if (!begins && description.device && *description.device != device_ordinal()) {
    refuse(kCall, fmt::format(
                      "the group's device is cuda:{}, but that of rank {} in kolo's world is {}; "
                      "give the device where the world begins (init_process_group)",
                      *description.device, kolo::rank(),
                      device_ordinal() < 0 ? "the CPU" : fmt::format("cuda:{}", device_ordinal())));
  }
  if (begins) begin_world(description);
  auto group =
      c10::make_intrusive<ProcessGroupKolo>(begins ? ProcessSet() : add_set_of(description));
  group->owns_world_ = begins;
  group->owns_set_ = group->set_.id() != 0;
  group->store_ = description.store;
  if (is_set(description.timeout)) group->setTimeout(description.timeout);
  return group;
}

void ProcessGroupKolo::shutdown() {
  if (world_ != world_number() || world_ == 0) return;
  if (owns_world_) kolo::shutdown();
  if (!std::exchange(owns_set_, false) || has_failed()) return;
  remove_process_set_by_its_ranks(set_);
}

c10d::ErrorType ProcessGroupKolo::getError() {
  const bool is_over = world_ == 0 || world_ != world_number() || has_failed();
  return is_over ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupKolo::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  static_cast<void>(set());
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(world_rank(rank, "split"));
  if (members.empty() ||
      std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end()) {
    refuse("split",
           fmt::format("takes a rank or more, ascending, not [{}]", fmt::join(ranks, ", ")));
  }
  auto group = c10::make_intrusive<ProcessGroupKolo>(add_process_set_by_its_ranks(members));
  group->store_ = store;
  group->owns_set_ = true;
  group->setTimeout(options && is_set(options->timeout) ? options->timeout : timeout_);
  return group;
}

}  // namespace kolo
