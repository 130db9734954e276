// What the TCP store's two ends say to each other. A server greets with kStoreGreeting and a nonce;
// the client answers with a nonce of its own, who it is and a proof that it knows the job's secret,
// and the server takes it in or refuses it with a proof of the same. Whose proof is wrong it
// refuses with one of the meeting's own secret, if it has such a one. Then requests and replies
// alternate: frames of a length and fields (runtime/base/blob.h). All is data of the host's byte
// order. Pure.
#pragma once

#include "runtime/bootstrap/secret.h"

#include <kolo/error.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// The version of this protocol is part of it.
inline constexpr std::string_view kStoreGreeting = "kolo store 2\n";
inline constexpr std::size_t kNonceSize = 32;
/// Bytes of one frame: a stranger's hello, a rank's request, a reply with what all ranks gave.
inline constexpr std::size_t kHelloLimit = 4096;
inline constexpr std::size_t kRequestLimit = std::size_t{16} << 20;
inline constexpr std::size_t kReplyLimit = std::size_t{1} << 30;

/// A rank as it introduces itself.
struct Member {
  int rank = 0;
  int size = 0;     ///< the number of ranks that it expects
  std::string who;  ///< "pid 12 on node1", for people
  /// The job by its launcher's name for it ("SLURM_JOB_ID=17"), which tells two jobs apart that
  /// meet at one address; empty: not known. With a secret it is empty, too: that tells them apart.
  std::string job = {};
};

// Requests: their first field, and what follows it.
inline constexpr std::string_view kSetRequest = "set";            ///< key, value
inline constexpr std::string_view kGetRequest = "get";            ///< key, milliseconds
inline constexpr std::string_view kExchangeRequest = "exchange";  ///< phase, value, milliseconds
inline constexpr std::string_view kGiveUpRequest = "give up";  ///< as kErrorReply, and so replied
inline constexpr std::string_view kLeaveRequest = "leave";     ///< nothing; has no reply
// Replies.
inline constexpr std::string_view kOkReply = "ok";  ///< what was asked for
inline constexpr std::string_view kErrorReply =
    "error";  ///< ErrorCode as a number, message; to a hello perhaps a proof

using Fields = std::vector<std::string>;

std::string to_frame(const Fields& fields);
/// What follows a frame's length; at least one field, else kMismatch.
Result<Fields> parse_body(std::string_view body);
/// Takes the first frame off `buffer`: nothing while it is not whole. kMismatch if it is longer
/// than `limit` or not made of fields.
Result<std::optional<Fields>> take_frame(std::string& buffer, std::size_t limit);

/// What one end proves; `role` is "client" or "server", or "meeting" of that secret.
std::string store_proof(std::string_view secret, std::string_view role,
                        std::string_view server_nonce, std::string_view client_nonce,
                        const Member& member);

Fields error_reply(const Error& error);
/// The fields after kOkReply, or the error that was sent. kMismatch for anything else.
Result<Fields> parse_reply(Fields reply);

/// A number of decimal digits, at most nine.
std::optional<int> parse_count(std::string_view text);

}  // namespace kolo
