#include "runtime/base/in_call.h"

namespace kolo {

constinit thread_local int InCall::depth_ = 0;

}  // namespace kolo
