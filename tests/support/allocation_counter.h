// Counts this program's allocations by operator new. Linking this file replaces the operators, so
// only tests of "allocates nothing" do. Any thread.
#pragma once

namespace kolo::test {

/// Number of calls of operator new so far.
long allocations();

}  // namespace kolo::test
