#include "runtime/bootstrap/agent_store.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/secret.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

// The first byte of a request; its fields follow. Numbers have the host's byte order. A text
// follows its length, which has 64 bits.
constexpr char kAgentValidate = 0;  ///< kAgentMagic; no reply
constexpr char kAgentSet = 1;       ///< key, value; no reply
constexpr char kAgentGet = 3;       ///< key; reply: the value
constexpr char kAgentWait = 6;      ///< number of keys, keys; reply: one byte once all keys exist
constexpr char kAgentPing = 13;     ///< 32 bits; reply: the same 32 bits
constexpr std::uint32_t kAgentMagic = 0x3C85F7CE;
constexpr char kKeysAreThere = 0;
// Everything that rank 0 publishes is shorter.
constexpr std::uint64_t kLongestValue = 4096;

template <class Number>
std::string to_bytes(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string text(std::string_view characters) {
  return to_bytes(std::uint64_t{characters.size()}).append(characters);
}

/// Every client of TCPStore puts its keys below "/".
std::string key_of(std::string_view key) { return text("/" + std::string(key)); }

}  // namespace

Result<AgentStore> AgentStore::connect(const Endpoint& agent, Deadline deadline) {
  KOLO_ASSIGN(UniqueDescriptor fd, connect_to(agent, deadline));
  KOLO_ASSIGN(std::string own_address, local_address(fd.get()));
  AgentStore store(std::move(fd), std::move(own_address));
  KOLO_ASSIGN(const std::string nonce, random_bytes(sizeof(std::uint32_t)));
  const std::string hello = kAgentValidate + to_bytes(kAgentMagic) + kAgentPing + nonce;
  KOLO_TRY(send_all(store.fd_.get(), hello, deadline));
  KOLO_ASSIGN(const std::string reply, receive_exactly(store.fd_.get(), nonce.size(), deadline));
  if (reply != nonce) return KOLO_ERROR(kMismatch, "it does not speak as PyTorch's TCPStore");
  return store;
}

Status AgentStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  KOLO_TRY(send_all(fd_.get(), kAgentSet + key_of(key) + text(value), deadline));
  return await_key(key, deadline);
}

Result<std::string> AgentStore::get(std::string_view key, Deadline deadline) {
  KOLO_TRY(await_key(key, deadline));
  KOLO_TRY(send_all(fd_.get(), kAgentGet + key_of(key), deadline));
  std::uint64_t length = 0;
  KOLO_ASSIGN(const std::string header, receive_exactly(fd_.get(), sizeof length, deadline));
  std::memcpy(&length, header.data(), sizeof length);
  if (length > kLongestValue) return KOLO_ERROR(kMismatch, "a value of {} bytes", length);
  return receive_exactly(fd_.get(), length, deadline);
}

Status AgentStore::await_key(std::string_view key, Deadline deadline) {
  KOLO_TRY(send_all(fd_.get(), kAgentWait + to_bytes(std::uint64_t{1}) + key_of(key), deadline));
  KOLO_ASSIGN(const std::string reply, receive_exactly(fd_.get(), 1, deadline));
  if (reply[0] == kKeysAreThere) return {};
  return KOLO_ERROR(kMismatch, "an answer of {:#04x} to a request that waits", reply[0]);
}

}  // namespace kolo
