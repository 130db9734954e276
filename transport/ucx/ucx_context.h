// UcxContext and worker of one rank: how UCX is configured and opened, and what it says of itself.
// Used by UcxTransport alone.
#pragma once

#include "transport/ucx/ucx_handles.h"
#include "transport/ucx/ucx_transport.h"

#include <string>

namespace kolo {

/// Member order: the worker goes before its context.
struct UcxResources {
  UcxContext context;
  UcxWorker worker;
  std::string address;  ///< of the worker
  int event_fd = -1;    ///< owned by the worker
};

Result<UcxResources> open_ucx(const UcxOptions& options);

/// The version of the library that was loaded, which an MPI may have brought along.
std::string ucx_version();

/// UCX's names ("posix", "cma", "tcp") of what `endpoint` uses, or of all that `context` opened,
/// separated by commas.
std::string ucx_transports(ucp_ep_h endpoint);
std::string ucx_transports(ucp_context_h context);

}  // namespace kolo
