#include "runtime/health/abort_notice.h"

#include "runtime/base/check.h"

#include <cstring>

namespace kolo {

std::string AbortNotice::encode() const {
  std::string bytes(1, static_cast<char>(error.code));
  bytes.append(reinterpret_cast<const char*>(&culprit), sizeof culprit);
  return bytes + error.message;
}

AbortNotice AbortNotice::decode(std::span<const std::byte> bytes, int sender) {
  AbortNotice notice;
  constexpr std::size_t kHeader = 1 + sizeof notice.culprit;
  if (bytes.size() < kHeader || bytes[0] > static_cast<std::byte>(ErrorCode::kInternal)) {
    return {KOLO_ERROR(kInternal, "rank {} has failed (its notice is malformed)", sender), sender};
  }
  std::memcpy(&notice.culprit, bytes.data() + 1, sizeof notice.culprit);
  const auto text = bytes.subspan(kHeader);
  notice.error = KOLO_ERROR(
      kInternal, "{}", std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
  notice.error.code = static_cast<ErrorCode>(bytes[0]);
  return notice;
}

}  // namespace kolo
