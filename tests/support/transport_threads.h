// N ranks as N threads, each with only a loopback transport: for tests of the layers between
// transport and runtime.
#pragma once

#include "transport/transport.h"

#include <functional>

namespace kolo::test {

/// Calls body(rank, transport) on a thread for each rank and joins them. All transports are
/// connected first and live until every body has returned.
void run_transport_threads(int size,
                           const std::function<void(int rank, Transport& transport)>& body);

}  // namespace kolo::test
