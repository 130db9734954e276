#include "runtime/health/abort_message.h"

#include "runtime/base/check.h"

#include <cstring>

namespace kolo {

std::string AbortMessage::encode() const {
  std::string bytes(1, static_cast<char>(error.code));
  bytes.append(reinterpret_cast<const char*>(&culprit), sizeof culprit);
  return bytes + error.message;
}

AbortMessage AbortMessage::decode(std::span<const std::byte> bytes, int sender) {
  AbortMessage abort_message;
  constexpr std::size_t kHeader = 1 + sizeof abort_message.culprit;
  if (bytes.size() < kHeader || bytes[0] > static_cast<std::byte>(ErrorCode::kInternal)) {
    return {KOLO_ERROR(kInternal, "rank {} has failed (its abort message is malformed)", sender),
            sender};
  }
  std::memcpy(&abort_message.culprit, bytes.data() + 1, sizeof abort_message.culprit);
  const auto text = bytes.subspan(kHeader);
  abort_message.error = KOLO_ERROR(
      kInternal, "{}", std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
  abort_message.error.code = static_cast<ErrorCode>(bytes[0]);
  return abort_message;
}

}  // namespace kolo
