#include "runtime/bootstrap/store_wire.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/socket.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo {
namespace {
/// Between the number of a run and its value.
constexpr char kGiven = ' ';
}  // namespace

std::string to_frame(const Fields& fields) { return to_frame_of(join_fields(fields)); }

std::string to_frame_of(std::string_view body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
  return frame += body;
}

Result<std::string> receive_body(int fd, std::size_t limit, Deadline deadline) {
  std::uint32_t length = 0;
  KOLO_ASSIGN(const std::string header, receive_exactly(fd, sizeof length, deadline));
  std::memcpy(&length, header.data(), sizeof length);
  if (length > limit) return KOLO_ERROR(kMismatch, "a reply of {} bytes", length);
  return receive_exactly(fd, length, deadline);
}

Result<Fields> parse_body(std::string_view body) {
  Fields fields;
  if (!split_fields(body, fields) || fields.empty()) {
    return KOLO_ERROR(kMismatch, "a frame of {} bytes that is not kolo's", body.size());
  }
  return fields;
}

Result<std::optional<Fields>> take_frame(std::string& buffer, std::size_t limit) {
  std::uint32_t length = 0;
  if (buffer.size() < sizeof length) return std::optional<Fields>();
  std::memcpy(&length, buffer.data(), sizeof length);
  if (length > limit) {
    return KOLO_ERROR(kMismatch, "a frame of {} bytes where at most {} are allowed", length, limit);
  }
  if (buffer.size() < sizeof length + length) return std::optional<Fields>();
  KOLO_ASSIGN(Fields fields, parse_body(std::string_view(buffer).substr(sizeof length, length)));
  buffer.erase(0, sizeof length + length);
  return std::optional(std::move(fields));
}

std::string store_proof(std::string_view secret, std::string_view role,
                        std::string_view server_nonce, std::string_view client_nonce,
                        const Member& member) {
  return hmac_sha256(secret, join_fields({std::string(role), std::string(server_nonce),
                                          std::string(client_nonce), std::to_string(member.rank),
                                          std::to_string(member.size), member.who, member.job}));
}

Fields error_reply(const Error& error) {
  return {std::string(kErrorReply), std::to_string(static_cast<int>(error.code)), error.message};
}

Result<Fields> parse_reply(Fields reply) {
  if (reply[0] == kOkReply) {
    reply.erase(reply.begin());
    return reply;
  }
  if (reply[0] == kErrorReply && (reply.size() == 3 || reply.size() == 4)) {
    const auto code = parse_count(reply[1]);
    if (code && *code <= static_cast<int>(ErrorCode::kInternal)) {
      return Error{static_cast<ErrorCode>(*code), std::move(reply[2]), __FILE__, __LINE__};
    }
  }
  return KOLO_ERROR(kMismatch, "a reply that is not kolo's");
}

Fields to_runs(const Gathered& values) {
  Fields runs;
  for (auto run = values.begin(); run != values.end();) {
    const auto end = std::find_if(run, values.end(), [&](const auto& v) { return v != *run; });
    runs.push_back(std::to_string(end - run) + (*run ? kGiven + **run : std::string()));
    run = end;
  }
  return runs;
}

Result<Gathered> from_runs(const Fields& runs, std::size_t size) {
  Gathered values;
  for (const std::string& run : runs) {
    const std::size_t end = std::min(run.find(kGiven), run.size());
    const auto count = parse_count(std::string_view(run).substr(0, end));
    if (!count || static_cast<std::size_t>(*count) > size - values.size())
      return KOLO_ERROR(kMismatch, "a reply of {} runs that are not those of {} ranks", runs.size(),
                        size);
    values.insert(values.end(), static_cast<std::size_t>(*count),
                  end < run.size() ? std::optional(run.substr(end + 1)) : std::nullopt);
  }
  if (values.size() == size) return values;
  return KOLO_ERROR(kMismatch, "a reply for {} ranks where there are {}", values.size(), size);
}

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size() || value < 0 || text.size() > 9) {
    return std::nullopt;
  }
  return value;
}

}  // namespace kolo
