// The UCX context and worker of one rank: how UCX is configured and opened, and what it tells about
// itself. Used by UcxTransport alone.
#pragma once

#include "transport/ucx/ucx_handles.h"
#include "transport/ucx/ucx_transport.h"

#include <string>

namespace kolo {

/// The member order destroys the worker before its context.
struct UcxResources {
  UcxContext context;
  UcxWorker worker;
  std::string address;  ///< the worker's address
  int event_fd = -1;    ///< owned by the worker
};

Result<UcxResources> open_ucx(const UcxOptions& options);

/// The version of the loaded library, which may come from an MPI.
std::string ucx_version();
/// Whether it is 1.`minor` or newer.
bool is_ucx_from(unsigned minor);

/// UCX's names ("posix", "cma", "tcp") of the transports that `endpoint` uses, or that `context`
/// opened, separated by commas.
std::string ucx_transports(ucp_ep_h endpoint);
std::string ucx_transports(ucp_context_h context);

}  // namespace kolo
