#include <kolo/error.h>

namespace kolo {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kTransport:
      return "transport";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kShutdown:
      return "shutdown";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown error";
}

}  // namespace kolo
