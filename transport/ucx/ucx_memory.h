// Memory regions over UCX: allocated so that ranks on this host can map them, registered, and
// mapped from a peer. Used by UcxTransport alone, on its thread.
#pragma once

#include "transport/memory_region.h"
#include "transport/ucx/ucx_handles.h"

#include <memory>
#include <string_view>

namespace kolo {

/// Shared memory of `bytes` bytes. UCX falls back to private memory without a word when there is
/// no room for shared memory; `own_endpoint`, one of the worker to itself, finds that out:
/// kOutOfMemory.
Result<std::unique_ptr<MemoryRegion>> allocate_ucx_memory(ucp_context_h context,
                                                          ucp_ep_h own_endpoint, std::size_t bytes);

Result<std::unique_ptr<MemoryRegion>> register_ucx_memory(ucp_context_h context,
                                                          std::span<std::byte> bytes,
                                                          MemoryType type);

/// Tells UCX whose memory a message lies in, and by which handle it is registered: `memory` is what
/// register_ucx_memory() gave, or null for the host's.
void describe_memory(ucp_request_param_t& params, const MemoryRegion* memory);

/// Maps what the rank behind `endpoint` allocated, by its region's key.
Result<std::unique_ptr<PeerMapping>> map_ucx_memory(ucp_ep_h endpoint, std::string_view key);

}  // namespace kolo
