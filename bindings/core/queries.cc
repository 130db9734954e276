// What the process's runtime tells of itself, also as a timeline, and the memory that it gives. Any
// thread.
#include "bindings/core/force_algorithm.h"
#include "bindings/core/global.h"
#include "bindings/core/shared_memory.h"

#include <kolo/kolo.h>
#include <kolo/timeline.h>

#include <cstddef>
#include <memory>
#include <string>

namespace kolo {

std::shared_ptr<void> allocate(std::size_t bytes) {
  return value_or_throw(runtime_for("allocate")->allocate(bytes));
}

std::shared_ptr<void> allocate_if_shared(std::size_t bytes) {
  return value_or_throw(runtime_for("allocate_if_shared")->allocate_if_shared(bytes));
}

std::shared_ptr<void> allocate_on_device(std::size_t bytes) {
  return value_or_throw(runtime_for("allocate_on_device")->allocate_on_device(bytes));
}

std::size_t arena_bytes_used() { return runtime_for("arena_bytes_used")->arena_bytes_used(); }

std::size_t device_arena_bytes_used() {
  return runtime_for("device_arena_bytes_used")->device_arena_bytes_used();
}

int rank() { return runtime_for("rank")->world().rank(); }
int size() { return runtime_for("size")->world().size(); }
int local_rank() { return runtime_for("local_rank")->world().local_rank(); }
int local_size() { return runtime_for("local_size")->world().local_size(); }
int cross_rank() { return runtime_for("cross_rank")->world().cross_rank(); }
int cross_size() { return runtime_for("cross_size")->world().cross_size(); }

int device_ordinal() {
  const Accelerator* const accelerator = runtime_for("device_ordinal")->accelerator();
  return accelerator == nullptr ? -1 : accelerator->info().ordinal;
}

RuntimeInfo runtime_info() { return runtime_for("runtime_info")->info(); }

void start_timeline(const std::string& path) {
  throw_if_failed(runtime_for("start_timeline")->start_timeline(path));
}

void stop_timeline() { throw_if_failed(runtime_for("stop_timeline")->stop_timeline()); }

void force_algorithm(const std::string& algorithm) {
  runtime_for("force_algorithm")->force_algorithm(algorithm);
}

}  // namespace kolo
