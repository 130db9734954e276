// The memory that kolo-perf measures on. Header-only; main thread.
#pragma once

#include "tools/perf/gpu.h"

#include <kolo/kolo.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace kolo::perf {

enum class Memory {
  kPrivate,  ///< memory of one rank
  kShared,   ///< from kolo::allocate() or kolo::allocate_on_device()
};

/// Zeroed, so that no page fault is timed. Aligned at least as LibTorch aligns tensors, so that no
/// vector crosses a cache line.
class Buffer {
 public:
  /// With `gpu`, the GPU's memory is measured, and data() is the host's copy.
  Buffer(std::size_t size, Memory memory, Gpu* gpu = nullptr)
      : size_(size),
        data_(allocate_as(gpu == nullptr ? memory : Memory::kPrivate, size)),
        gpu_(gpu) {
    std::memset(data_.get(), 0, size_);
    if (gpu_ == nullptr) return;
    on_gpu_ = memory == Memory::kShared ? shared_on_device(size_) : gpu_->allocate(size_);
    push();
  }

  /// The memory that is measured.
  std::byte* place() const {
    return static_cast<std::byte*>(gpu_ != nullptr ? on_gpu_.get() : data_.get());
  }
  /// push() copies the host's bytes to the GPU, pull() copies them back. No effect without a GPU.
  void push() const { copy(on_gpu_.get(), data_.get()); }
  void pull() const { copy(data_.get(), on_gpu_.get()); }

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  void copy(void* destination, const void* source) const {
    if (gpu_ == nullptr) return;
    gpu_->copy(destination, source, size_);
    gpu_->synchronize();
  }

  static std::shared_ptr<void> shared_on_device(std::size_t size) {
    auto shared = allocate_on_device(size > 0 ? size : 1);
    if (shared != nullptr) return shared;
    throw std::runtime_error("--memory shared: rank " + std::to_string(rank()) + " has no " +
                             std::to_string(size) +
                             " bytes on its device that other ranks reach: several ranks of a host "
                             "share some (KOLO_DEVICE_ARENA), where kolo-info says that it is "
                             "mapped");
  }

  static std::shared_ptr<void> allocate_as(Memory memory, std::size_t size) {
    if (memory == Memory::kShared) return allocate(size);
    return {::operator new(size, kAlignment),
            [](void* data) { ::operator delete(data, kAlignment); }};
  }

  std::size_t size_;
  std::shared_ptr<void> data_;
  Gpu* const gpu_;
  std::shared_ptr<void> on_gpu_;
};

}  // namespace kolo::perf
