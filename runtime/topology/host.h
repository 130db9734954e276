// What this process may use of its host, by hwloc. Read once at init.
#pragma once

namespace kolo {

/// Cores (not hardware threads) that this process may run on: decides whether ranks may spin.
int usable_cores();

}  // namespace kolo
