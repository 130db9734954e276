#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kolo {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "[kolo] %s:%d: broken invariant: %s; please report this bug\n", file, line,
               condition);
  std::abort();
}

}  // namespace kolo
