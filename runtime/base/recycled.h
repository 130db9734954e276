// Recycled: memory of objects that a step of training makes by the thousand. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace kolo {

/// An allocator of single objects that keeps the memory of the last ones freed, of all threads, and
/// hands it out again. malloc keeps seven blocks of a size for a thread; beyond, both malloc and
/// free take several times as long.
template <class T>
class Recycled {
 public:
  using value_type = T;

  Recycled() = default;
  template <class U>
  Recycled(const Recycled<U>&) {}

  T* allocate(std::size_t count) {
    void* const block = count == 1 ? take() : nullptr;
    return static_cast<T*>(
        block != nullptr ? block : ::operator new(count * sizeof(T), std::align_val_t(alignof(T))));
  }

  void deallocate(T* block, std::size_t count) {
    if (count != 1 || !keep(block)) ::operator delete(block, std::align_val_t(alignof(T)));
  }

  template <class U>
  bool operator==(const Recycled<U>&) const {
    return true;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr std::size_t kMost = 0;  // so that the sanitizers see each object's end
#else
  static constexpr std::size_t kMost = 4096;
#endif
  struct Kept {
    std::atomic_flag in_use;
    std::size_t size = 0;
    std::array<void*, kMost> blocks;
  };

  static Kept& kept() {
    static Kept& kept = *new Kept;  // never destroyed: users' Works may end after it
    return kept;
  }

  // While another thread is in here, malloc serves: nobody waits, not even in a forked child.
  static void* take() {
    Kept& kept = Recycled::kept();
    if (kept.in_use.test_and_set(std::memory_order_acquire)) return nullptr;
    void* const block = kept.size > 0 ? kept.blocks[--kept.size] : nullptr;
    kept.in_use.clear(std::memory_order_release);
    return block;
  }
  static bool keep(void* block) {
    Kept& kept = Recycled::kept();
    if (kept.in_use.test_and_set(std::memory_order_acquire)) return false;
    const bool has_room = kept.size < kept.blocks.size();
    if (has_room) kept.blocks[kept.size++] = block;
    kept.in_use.clear(std::memory_order_release);
    return has_room;
  }
};

}  // namespace kolo
