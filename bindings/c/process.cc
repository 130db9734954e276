// Start, end, queries, memory and process sets for C. Any thread.
#include "bindings/c/guard.h"
#include "bindings/core/global.h"

#include <kolo/membership.h>
#include <kolo/timeline.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace kolo {
namespace {

std::string text_or_none(const char* text) { return text == nullptr ? "" : text; }

/// Live blocks of kolo_allocate().
class Allocations {
 public:
  void* add(std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    void* const address = memory.get();
    blocks_[address] = std::move(memory);
    return address;
  }

  /// Returns null if there is no block at `address`.
  std::shared_ptr<void> take(void* address) {
    const std::lock_guard lock(mutex_);
    const auto node = blocks_.extract(address);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<void>> blocks_;
};

/// Never destroyed: another static object may free its memory later.
Allocations& allocations() {
  static auto* const instance = new Allocations;
  return *instance;
}

InitOptions init_options_of(const kolo_init_options& given) {
  InitOptions options;
  options.init_method = text_or_none(given.init_method);
  if (given.size != 0) {
    options.size = given.size;
    options.rank = given.rank;
  } else if (given.rank != 0) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "kolo_init(): rank is {} and size is not given: give both or neither",
                     given.rank));
  }
  options.group_name = text_or_none(given.group_name);
  if (given.backend != nullptr) options.backend = given.backend;
  if (given.timeout_seconds != 0) options.timeout = std::chrono::seconds(given.timeout_seconds);
  options.mpi_comm = given.mpi_comm;
  return options;
}

}  // namespace
}  // namespace kolo

const char* kolo_version(void) { return KOLO_VERSION; }
int kolo_mpi_built(void) { return kolo::mpi_built() ? 1 : 0; }
int kolo_cuda_built(void) { return kolo::cuda_built() ? 1 : 0; }
int kolo_nccl_built(void) { return kolo::nccl_built() ? 1 : 0; }

kolo_status kolo_init(const kolo_init_options* options) {
  return kolo::guard(
      [&] { kolo::init(kolo::init_options_of(options ? *options : kolo_init_options{})); });
}

kolo_status kolo_shutdown(void) { return kolo::guard(kolo::shutdown); }

kolo_status kolo_abort(const char* reason) {
  return kolo::guard([&] { kolo::abort(kolo::text_or_none(reason)); });
}

kolo_status kolo_start_timeline(const char* path) {
  return kolo::guard([&] { kolo::start_timeline(kolo::text_or_none(path)); });
}

kolo_status kolo_stop_timeline(void) {
  return kolo::guard([] { kolo::stop_timeline(); });
}

int kolo_is_initialized(void) { return kolo::is_initialized() ? 1 : 0; }

int kolo_is_elastic(void) {
  return kolo::value_or_minus_one([] { return kolo::membership().is_elastic ? 1 : 0; });
}

int kolo_generation(void) {
  return kolo::value_or_minus_one([] { return kolo::membership().generation; });
}

kolo_status kolo_newcomers(int* count) {
  return kolo::guard([&] {
    kolo::need("kolo_newcomers", count, "count");
    *count = kolo::newcomers();
  });
}

kolo_status kolo_loss(void) {
  return kolo::guard([] {
    if (auto loss = kolo::loss()) kolo::raise(*std::move(loss));
  });
}

kolo_status kolo_enter_next_world(void) { return kolo::guard(kolo::enter_next_world); }

kolo_status kolo_split_world(kolo_color color, void* context, uint32_t* set) {
  return kolo::guard([&] {
    constexpr const char* kCall = "kolo_split_world";
    kolo::need(kCall, reinterpret_cast<const void*>(color), "color");
    kolo::need(kCall, set, "set");
    const auto color_of = [color, context](const kolo::RankPlace& place) {
      return color(context, place.rank, place.size, place.host, place.local_rank);
    };
    *set = kolo::split_world(color_of).id();
  });
}

int kolo_rank(void) { return kolo::value_or_minus_one(kolo::rank); }
int kolo_size(void) { return kolo::value_or_minus_one(kolo::size); }
int kolo_local_rank(void) { return kolo::value_or_minus_one(kolo::local_rank); }
int kolo_local_size(void) { return kolo::value_or_minus_one(kolo::local_size); }
int kolo_cross_rank(void) { return kolo::value_or_minus_one(kolo::cross_rank); }
int kolo_cross_size(void) { return kolo::value_or_minus_one(kolo::cross_size); }
int kolo_device_ordinal(void) { return kolo::value_or_minus_one(kolo::device_ordinal); }

kolo_status kolo_allocate(size_t bytes, void** memory) {
  return kolo::guard([&] {
    kolo::need("kolo_allocate", memory, "memory");
    *memory = nullptr;
    *memory = kolo::allocations().add(kolo::allocate(bytes));
  });
}

kolo_status kolo_free(void* memory) {
  return kolo::guard([&] {
    if (memory == nullptr || kolo::allocations().take(memory)) return;
    kolo::raise(
        KOLO_ERROR(kInvalidArgument,
                   "kolo_free(): {} is no memory that kolo_allocate() gave, or it was freed "
                   "already",
                   memory));
  });
}

kolo_status kolo_add_process_set(const int* ranks, int count, uint32_t* set) {
  return kolo::guard([&] {
    constexpr const char* kCall = "kolo_add_process_set";
    kolo::need(kCall, set, "set");
    if (count < 0) kolo::raise(KOLO_ERROR(kInvalidArgument, "{}(): {} ranks", kCall, count));
    if (count > 0) kolo::need(kCall, ranks, "ranks");
    *set = kolo::add_process_set(std::vector<int>(ranks, ranks + count)).id();
  });
}

kolo_status kolo_remove_process_set(uint32_t set) {
  return kolo::guard([&] { kolo::remove_process_set(kolo::ProcessSet(set)); });
}

kolo_status kolo_process_set_size(uint32_t set, int* size) {
  return kolo::guard([&] {
    kolo::need("kolo_process_set_size", size, "size");
    *size = kolo::ProcessSet(set).size();
  });
}

kolo_status kolo_process_set_rank(uint32_t set, int* rank) {
  return kolo::guard([&] {
    kolo::need("kolo_process_set_rank", rank, "rank");
    *rank = kolo::ProcessSet(set).rank();
  });
}

kolo_status kolo_process_set_ranks(uint32_t set, int* ranks) {
  return kolo::guard([&] {
    kolo::need("kolo_process_set_ranks", ranks, "ranks");
    std::ranges::copy(kolo::ProcessSet(set).ranks(), ranks);
  });
}
