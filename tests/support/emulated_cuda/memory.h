// Tells which memory the emulated devices reach. Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/gpus.h"

#include <cstddef>
#include <string>

namespace kolo::test::emulated_cuda {

/// Whether a kernel of the device may touch the memory: its own, another device's that it was
/// allowed to reach, another process's that is mapped, or pinned memory.
bool is_reached(const Gpu* gpu, const void* address, std::size_t bytes);
/// False if the memory begins in a known block and ends after it.
bool is_within(const void* address, std::size_t bytes);
/// Whether it is host memory that is not pinned.
bool is_pageable(const void* address);

/// The driver's functions for memory and for contexts, by name; null if there is none.
void* driver_function_of_memory(const std::string& name);
void* driver_function_of_contexts(const std::string& name);

/// Counts the blocks, pinned memory and imports of this process.
void count_memory(Alive& alive);

/// Waits until all streams of this process are idle.
void wait_for_streams();

}  // namespace kolo::test::emulated_cuda
