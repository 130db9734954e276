// Counts this program's allocations by operator new. Linking it replaces the operators, so only the
// tests of "allocates nothing" do. Any thread.
#pragma once

namespace kolo::test {

/// How often operator new was called so far.
long allocations();

}  // namespace kolo::test
