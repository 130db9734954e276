// A build without PMIx.
#include "runtime/base/check.h"
#include "runtime/bootstrap/pmix_bootstrap.h"

namespace kolo {

bool pmix_built() { return false; }

Result<std::unique_ptr<Bootstrap>> make_pmix_bootstrap(std::shared_ptr<int>, Deadline) {
  return KOLO_ERROR(kUnsupported,
                    "this build of kolo has no PMIx; configure with -DKOLO_WITH_PMIX=ON (Debian: "
                    "libpmix-dev), or use another init method");
}

}  // namespace kolo
