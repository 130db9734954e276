#include "bindings/torch/tensors/check_initialized.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/kolo.h>

namespace kolo {

void check_initialized(const std::string& who) {
  if (is_initialized()) return;
  try {
    static_cast<void>(size());  // throws kUnsupported in a forked child
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kShutdown) throw;
    raise(error.code(), who +
                            ": kolo::init() was not called yet, or kolo::shutdown() was called "
                            "since; call kolo::init() first");
  }
}

}  // namespace kolo
