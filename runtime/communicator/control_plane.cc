#include "runtime/communicator/control_plane.h"

#include <cstring>
#include <numeric>

namespace kolo {

Status ControlPlane::send(int rank, MessageKind kind, std::string_view payload) {
  const std::uint32_t id = communicator_.id();
  frame_.clear();
  frame_.push_back(static_cast<char>(kind));
  frame_.append(reinterpret_cast<const char*>(&id), sizeof id);
  frame_.append(payload);
  return transport_.post_message(communicator_.ranks()[static_cast<std::size_t>(rank)],
                                 std::as_bytes(std::span(frame_)));
}

Status ControlPlane::send(const std::vector<int>& ranks, MessageKind kind,
                          std::string_view payload) {
  Status first;
  for (const int rank : ranks) {
    Status status = send(rank, kind, payload);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status ControlPlane::send_to_others(MessageKind kind, std::string_view payload) {
  std::vector<int> others(static_cast<std::size_t>(communicator_.size()));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, communicator_.rank());
  return send(others, kind, payload);
}

std::optional<Message> ControlPlane::parse(std::span<const std::byte> frame) {
  Message message;
  constexpr std::size_t kHeader = 1 + sizeof message.communicator;
  if (frame.size() < kHeader ||
      frame[0] > std::byte{static_cast<std::uint8_t>(MessageKind::kSetAborted)}) {
    return std::nullopt;
  }
  message.kind = static_cast<MessageKind>(frame[0]);
  std::memcpy(&message.communicator, frame.data() + 1, sizeof message.communicator);
  message.payload = frame.subspan(kHeader);
  return message;
}

}  // namespace kolo
