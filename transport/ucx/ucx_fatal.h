// Lets a rank outlive UCX's failed assertions. UCX fails one if a peer goes away at certain moments
// while the two connect, and would end this process. Called by UcxTransport, on its thread.
//
// kolo defines ucs_fatal_error_format(), which ends the process, in UCX's place. Within
// outlive_ucx() it jumps back there. Elsewhere it calls UCX's own.
#pragma once

#include <optional>
#include <string>

namespace kolo {

/// Runs call(argument), which calls UCX. Returns what UCX says if it has given up. Then some calls
/// of UCX were not finished, and locks of its worker may be held: never touch the worker again.
/// Within another outlive_ucx(), the outer one returns.
std::optional<std::string> outlive_ucx(void (*call)(void*), void* argument);

template <class Call>
std::optional<std::string> outlive_ucx(Call call) {
  return outlive_ucx([](void* self) { (*static_cast<Call*>(self))(); }, &call);
}

}  // namespace kolo
