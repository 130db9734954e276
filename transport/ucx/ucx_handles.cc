// See ucx_handles.h.
#include "transport/ucx/ucx_handles.h"

#include "runtime/base/check.h"
#include "transport/ucx/ucx_log.h"

#include <array>
#include <utility>

namespace kolo {
namespace {

// A table, not a switch: the enum has 30 more codes, which differ between versions.
constexpr std::array<std::pair<ucs_status_t, ErrorCode>, 18> kCodes{{
    {UCS_ERR_NO_MEMORY, ErrorCode::kOutOfMemory},
    {UCS_ERR_NO_RESOURCE, ErrorCode::kOutOfMemory},
    {UCS_ERR_EXCEEDS_LIMIT, ErrorCode::kOutOfMemory},
    {UCS_ERR_INVALID_PARAM, ErrorCode::kInvalidArgument},
    {UCS_ERR_INVALID_ADDR, ErrorCode::kInvalidArgument},
    {UCS_ERR_NOT_IMPLEMENTED, ErrorCode::kUnsupported},
    {UCS_ERR_UNSUPPORTED, ErrorCode::kUnsupported},
    {UCS_ERR_NO_DEVICE, ErrorCode::kUnsupported},
    {UCS_ERR_MESSAGE_TRUNCATED, ErrorCode::kMismatch},
    {UCS_ERR_TIMED_OUT, ErrorCode::kTimeout},
    {UCS_ERR_CANCELED, ErrorCode::kAborted},
    {UCS_ERR_UNREACHABLE, ErrorCode::kPeerLost},
    {UCS_ERR_CONNECTION_RESET, ErrorCode::kPeerLost},
    {UCS_ERR_ENDPOINT_TIMEOUT, ErrorCode::kPeerLost},
    {UCS_ERR_NOT_CONNECTED, ErrorCode::kPeerLost},
    {UCS_ERR_REJECTED, ErrorCode::kPeerLost},
    {UCS_ERR_NO_ELEM, ErrorCode::kInternal},
    {UCS_ERR_ALREADY_EXISTS, ErrorCode::kInternal},
}};

}  // namespace

Error ucx_error(ucs_status_t status, const std::string& what) {
  ErrorCode code = ErrorCode::kTransport;
  for (const auto& [known, mapped] : kCodes) {
    if (known == status) code = mapped;
  }
  const std::string complaint = ucx_complaint();
  return {.code = code,
          .message = fmt::format("{}: {} (UCX{}{})", what, ucs_status_string(status),
                                 complaint.empty() ? "" : ": ", complaint),
          .file = __FILE__,
          .line = __LINE__};
}

}  // namespace kolo
