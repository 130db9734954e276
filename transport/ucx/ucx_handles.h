// Owners of UCX's handles, and the one mapping of its status codes to kolo's errors. Endpoints, the
// only other handles, belong to their worker, which closes them.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <ucp/api/ucp.h>

#include <string>

namespace kolo {

struct UcxConfigTraits {
  using Type = ucp_config_t*;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type config) noexcept { ucp_config_release(config); }
};
using UcxConfig = UniqueHandle<UcxConfigTraits>;

struct UcxContextTraits {
  using Type = ucp_context_h;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type context) noexcept { ucp_cleanup(context); }
};
using UcxContext = UniqueHandle<UcxContextTraits>;

struct UcxWorkerTraits {
  using Type = ucp_worker_h;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type worker) noexcept { ucp_worker_destroy(worker); }
};
using UcxWorker = UniqueHandle<UcxWorkerTraits>;

struct UcxRemoteKeyTraits {
  using Type = ucp_rkey_h;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type key) noexcept { ucp_rkey_destroy(key); }
};
using UcxRemoteKey = UniqueHandle<UcxRemoteKeyTraits>;

/// Mapped memory is released through the context that mapped it.
struct UcxMemoryTraits {
  struct Type {
    ucp_context_h context = nullptr;
    ucp_mem_h memory = nullptr;
    friend bool operator==(const Type&, const Type&) = default;
  };
  static constexpr Type invalid() { return {}; }
  static void close(Type mapped) noexcept { ucp_mem_unmap(mapped.context, mapped.memory); }
};
using UcxMemory = UniqueHandle<UcxMemoryTraits>;

/// "`what`: <UCX's own words> (UCX: <the line of its log that tells the cause>)", with the code
/// nearest to `status`, which must not be UCS_OK.
Error ucx_error(ucs_status_t status, const std::string& what);

}  // namespace kolo
