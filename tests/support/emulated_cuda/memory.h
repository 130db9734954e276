// What memory the emulated devices reach. Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/gpus.h"

#include <cstddef>
#include <string>

namespace kolo::test::emulated_cuda {

/// Whether a kernel of the device may touch it: its own memory, another device's that it was let
/// reach, another process's that is mapped, or pinned memory.
bool is_reached(const Gpu* gpu, const void* address, std::size_t bytes);
/// Whether it does not begin in memory that is known here and end behind it.
bool is_within(const void* address, std::size_t bytes);
/// Whether it is memory of the host that is not pinned.
bool is_pageable(const void* address);

/// The driver's functions by name, null where it has none: of memory, and of contexts.
void* driver_function_of_memory(const std::string& name);
void* driver_function_of_contexts(const std::string& name);

/// The blocks, pinned memory and imports of this process.
void count_memory(Alive& alive);

/// Until all streams of this process are idle.
void wait_for_streams();

}  // namespace kolo::test::emulated_cuda
