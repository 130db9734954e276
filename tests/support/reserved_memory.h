// The windows of ranks that are threads of a test.
#pragma once

#include "runtime/memory/shared_region.h"
#include "transport/transport.h"

namespace kolo::test {

/// Takes the transport's memory, of which untouched pages cost nothing.
inline ReservedMemory reserved_through(Transport& transport) {
  return {.reserve = [&transport](std::size_t bytes,
                                  int /*ranks*/) { return transport.allocate_mappable(bytes); },
          .map = [&transport](int peer,
                              std::string_view key) { return transport.map_peer(peer, key); }};
}

}  // namespace kolo::test
