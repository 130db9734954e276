// What memory the emulated devices reach. Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/emulated_cuda.h"

#include <cstddef>
#include <string>

namespace kolo::test::emulated_cuda {

/// Whether a kernel may touch it: memory of a device, of a peer's that is mapped, or pinned.
bool is_reached(const void* address, std::size_t bytes);

/// The driver's functions by name, null where it has none: of memory, and of contexts.
void* driver_function_of_memory(const std::string& name);
void* driver_function_of_contexts(const std::string& name);

/// The blocks, pinned memory and imports of this process.
void count_memory(Alive& alive);

/// Until all streams of this process are idle.
void wait_for_streams();

}  // namespace kolo::test::emulated_cuda
