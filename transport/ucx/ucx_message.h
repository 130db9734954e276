// What UcxTransport keeps of messages under way: the header on the wire, a message that came before
// its receive or out of order, and the record of a request that UCX has not completed.
#pragma once

#include "transport/tag.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace kolo {

class Transfer;
class UcxTransport;

/// Active message ids.
enum class UcxStream : std::uint8_t { kControl = 1, kTagged = 2 };

/// Precedes each message on the wire. Ranks run the same build on the same architecture: the
/// bootstrap has compared versions.
struct UcxHeader {
  std::uint64_t sequence = 0;  ///< number of this message from sender to receiver in its stream
  Tag tag = {};
  std::int32_t sender = 0;
  std::uint32_t checksum = 0;  ///< Transfer::checksum()
};

/// A message without its receive. A descriptor belongs to UCX until it is received or released.
struct UcxArrival {
  enum class Kind : std::uint8_t { kCopied, kEagerDescriptor, kRendezvous, kLocal };

  Kind kind = Kind::kCopied;
  std::size_t length = 0;
  std::uint64_t call = 0;            ///< Tag::call
  std::uint32_t checksum = 0;        ///< Transfer::checksum()
  std::vector<std::byte> copy = {};  ///< kCopied
  void* descriptor = nullptr;        ///< kEagerDescriptor: the data; kRendezvous
  const std::byte* local = nullptr;  ///< kLocal: sent by this rank to itself, still in its memory
  Transfer* local_send = nullptr;
};

/// One ucp_am_send_nbx or ucp_am_recv_data_nbx. Its address is the request's user data.
struct UcxRequest {
  UcxTransport* owner = nullptr;
  Transfer* transfer = nullptr;  ///< null for a control message
  int peer = 0;
  bool active = false;
  bool is_send = false;
  UcxHeader header = {};             ///< UCX 1.13 does not copy it: kept until completion
  std::vector<std::byte> copy = {};  ///< bytes of a control message
};

/// Reusable records with stable addresses.
class UcxRequestPool {
 public:
  UcxRequest& take() {
    if (free_.empty()) {
      free_.push_back(&records_.emplace_back());
    }
    UcxRequest& request = *free_.back();
    free_.pop_back();
    request.active = true;
    ++active_;
    return request;
  }
  void give_back(UcxRequest& request) {
    request.transfer = nullptr;
    request.active = false;
    if (request.copy.capacity() > kMostKept) request.copy = {};
    free_.push_back(&request);
    --active_;
  }
  std::size_t active() const { return active_; }
  std::deque<UcxRequest>& records() { return records_; }
  const std::deque<UcxRequest>& records() const { return records_; }

 private:
  /// Bytes of a record's buffer that are kept for the next message.
  static constexpr std::size_t kMostKept = 64 << 10;

  std::deque<UcxRequest> records_;
  std::vector<UcxRequest*> free_;
  std::size_t active_ = 0;
};

}  // namespace kolo
