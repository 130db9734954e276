// Memory regions over UCX: allocated for ranks on this host to map, registered, or mapped from a
// peer. Used by UcxTransport alone, on its thread.
#pragma once

#include "transport/memory_region.h"
#include "transport/ucx/ucx_handles.h"

#include <memory>
#include <string_view>

namespace kolo {

/// Shared memory of `bytes` bytes. Without room for it, UCX silently falls back to private memory.
/// Mapping through `own_endpoint`, the worker's endpoint to itself, detects that: kOutOfMemory.
Result<std::unique_ptr<MemoryRegion>> allocate_ucx_memory(ucp_context_h context,
                                                          ucp_ep_h own_endpoint, std::size_t bytes);

Result<std::unique_ptr<MemoryRegion>> register_ucx_memory(ucp_context_h context,
                                                          std::span<std::byte> bytes,
                                                          MemoryType type);

/// Tells UCX where a message lies, and the handle of its registration. `memory`: the region from
/// register_ucx_memory(), or null for host memory.
void describe_memory(ucp_request_param_t& params, const MemoryRegion* memory);

/// Maps the region that the rank behind `endpoint` allocated under `key`.
Result<std::unique_ptr<PeerMapping>> map_ucx_memory(ucp_ep_h endpoint, std::string_view key);

}  // namespace kolo
