// Separate from its users: a compiler that inlines a replaced operator reports its malloc as a
// mismatch.
#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> count = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  ++count;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kolo::test {

long allocations() { return count; }

}  // namespace kolo::test
