#include "bindings/c/work.h"

#include "bindings/c/guard.h"
#include "bindings/core/global.h"
#include "bindings/core/submissions.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace kolo {

void* WorkOutput::allocate(const Shape& shape, DataType type) {
  const std::size_t bytes = static_cast<std::size_t>(element_count(shape)) * size_of(type);
  // Never return null: null means out of memory.
  memory_.reset(std::malloc(std::max<std::size_t>(bytes, 1)));
  if (!memory_) throw std::bad_alloc();
  rows_ = shape.empty() ? 1 : shape.front();
  return memory_.get();
}

void WorkOutput::Free::operator()(void* memory) const noexcept { std::free(memory); }

void give_work(kolo_work started, kolo_work** out) {
  if (out != nullptr) {
    *out = new kolo_work(std::move(started));
  } else {
    started.wait();
  }
}

}  // namespace kolo

void kolo_work::wait() const {
  for (const auto& part : parts) (void)part->wait();
  for (const auto& part : parts) kolo::finish(*part, stream);
}

const kolo::Work& kolo_work::succeeded(const char* call) const {
  if (parts.size() != 1) {
    kolo::raise(
        KOLO_ERROR(kInvalidArgument, "{}() takes the work of one operation, not of a group", call));
  }
  kolo::Work& work = *parts.front();
  if (!work.done()) {
    kolo::raise(KOLO_ERROR(kInvalidArgument,
                           "{}() was called before its operation was done: call kolo_wait() first",
                           call));
  }
  kolo::synchronize(work);
  return work;
}

kolo_status kolo_wait(kolo_work* work) {
  return kolo::guard([&] {
    kolo::need("kolo_wait", work, "work");
    work->wait();
  });
}

kolo_status kolo_test(const kolo_work* work, int* done) {
  return kolo::guard([&] {
    kolo::need("kolo_test", work, "work");
    kolo::need("kolo_test", done, "done");
    *done = std::ranges::all_of(work->parts, [](const auto& part) { return part->done(); }) ? 1 : 0;
  });
}

kolo_status kolo_output(const kolo_work* work, void** memory, int64_t* rows) {
  return kolo::guard([&] {
    constexpr const char* kCall = "kolo_output";
    kolo::need(kCall, work, "work");
    kolo::need(kCall, memory, "memory");
    (void)work->succeeded(kCall);
    if (!work->output) {
      kolo::raise(KOLO_ERROR(kInvalidArgument,
                             "kolo_output(): the operation's output is the caller's own memory"));
    }
    *memory = work->output->memory();
    if (rows != nullptr) *rows = work->output->rows();
  });
}

kolo_status kolo_received_splits(const kolo_work* work, int64_t* splits, int count) {
  return kolo::guard([&] {
    constexpr const char* kCall = "kolo_received_splits";
    kolo::need(kCall, work, "work");
    kolo::need(kCall, splits, "splits");
    const auto& received = work->succeeded(kCall).received_splits();
    if (std::cmp_not_equal(received.size(), count)) {
      kolo::raise(KOLO_ERROR(kInvalidArgument,
                             "kolo_received_splits(): the operation has {} of them, and there is "
                             "room for {}",
                             received.size(), count));
    }
    std::ranges::copy(received, splits);
  });
}

kolo_status kolo_contributors(const kolo_work* work, int* count) {
  return kolo::guard([&] {
    kolo::need("kolo_contributors", work, "work");
    kolo::need("kolo_contributors", count, "count");
    *count = work->succeeded("kolo_contributors").contributors();
  });
}

void kolo_work_free(kolo_work* work) { delete work; }
