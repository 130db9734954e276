// The protocol of the TCP store. The server greets with kStoreHello and a nonce. The client answers
// with its own nonce, its identity and a proof that it knows the job's secret. The server accepts
// or refuses the client, and proves that it knows the secret, too. If the client's proof is wrong,
// the server proves that it knows the meeting's own secret, if there is one. Then requests and
// replies alternate: frames of a length and fields (runtime/base/blob.h), in the host's byte order.
// Pure, but for receive_body().
#pragma once

#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store.h"

#include <kolo/error.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Includes the version of this protocol.
inline constexpr std::string_view kStoreHello = "kolo store 4\n";
inline constexpr std::size_t kNonceSize = 32;
/// Largest frames, in bytes: a stranger's hello, a rank's request, a reply with all ranks' data.
inline constexpr std::size_t kHelloLimit = 4096;
inline constexpr std::size_t kRequestLimit = std::size_t{16} << 20;
inline constexpr std::size_t kReplyLimit = std::size_t{1} << 30;

/// How a rank introduces itself.
struct Member {
  int rank = 0;
  /// The number of ranks that it expects. 0: this is the rank's launcher on another node, and the
  /// rank has ended with exit status 0. See StoreMeetings::note_gone().
  int size = 0;
  std::string who;  ///< "pid 12 on node1", for people
  /// The launcher's name for the job ("SLURM_JOB_ID=17"), which tells two jobs at one address
  /// apart. Empty if not known, and if there is a secret, which tells jobs apart, too.
  std::string job = {};
};

// Requests: the first field. The comment lists the fields that follow.
inline constexpr std::string_view kSetRequest = "set";  ///< key, value
inline constexpr std::string_view kGetRequest = "get";  ///< key, milliseconds
/// Phase, value, milliseconds; in the first exchange of kRelayRanks ranks or more also the port of
/// this rank's Relay. The reply has runs: see to_runs(); or it is kRelayReply. A rank may ask
/// again.
inline constexpr std::string_view kExchangeRequest = "exchange";
/// Phase, value, without a reply: what the rank gave in an exchange by its Relay.
inline constexpr std::string_view kTellRequest = "tell";
inline constexpr std::string_view kGiveUpRequest = "give up";  ///< as kErrorReply, also the reply
inline constexpr std::string_view kLeaveRequest = "leave";     ///< no fields, no reply
// Requests to the store of an elastic job (Lobby), whose clients are processes, not ranks.
/// "new" for a process that may be in no world yet, "next" for one that asks for the next world;
/// milliseconds. The reply is a generation, a rank and a size. Generation 0 tells a new process
/// that the others train already.
inline constexpr std::string_view kWorldRequest = "world";
inline constexpr std::string_view kNewcomersRequest = "newcomers";  ///< no fields; their number
/// No fields, no reply: the process ends with this connection, in order if kLeaveRequest came
/// before.
inline constexpr std::string_view kLifelineRequest = "lifeline";
// Requests of the kolo-run of a further node (kolo-run --nnodes) to that of node 0.
/// The node's number, its slots. The reply has no fields; frames that the launcher gives follow at
/// any time. The node's processes end with this connection.
inline constexpr std::string_view kNodeRequest = "node";
/// A process of the node has ended: its number, "1" if it has done its training; fields of the
/// launcher's own. No reply.
inline constexpr std::string_view kEndedRequest = "ended";
// Replies.
inline constexpr std::string_view kOkReply = "ok";  ///< the requested data
/// Where the parent of a RelayPlace listens, that is its host (empty: the store's) and port, and
/// the token. For rank 0 the reply itself follows. From now on the rank is told of the meeting's
/// failure at once, by a kErrorReply, which is the reply to its next request.
inline constexpr std::string_view kRelayReply = "relay";
/// ErrorCode as a number, message; in reply to a hello perhaps a proof.
inline constexpr std::string_view kErrorReply = "error";

using Fields = std::vector<std::string>;

std::string to_frame(const Fields& fields);
/// The frame of a body, which to_frame() would make of the fields.
std::string to_frame_of(std::string_view body);
/// The body of a frame of at most `limit` bytes.
Result<std::string> receive_body(int fd, std::size_t limit, Deadline deadline);
/// Parses what follows a frame's length. kMismatch without at least one field.
Result<Fields> parse_body(std::string_view body);
/// Takes the first frame off `buffer`; nothing while the frame is incomplete. kMismatch if it is
/// longer than `limit` or not made of fields.
Result<std::optional<Fields>> take_frame(std::string& buffer, std::size_t limit);

/// The proof of one end. `role` is "client" or "server", or "meeting" with the meeting's secret.
std::string store_proof(std::string_view secret, std::string_view role,
                        std::string_view server_nonce, std::string_view client_nonce,
                        const Member& member);

Fields error_reply(const Error& error);
/// The fields after kOkReply, or the error that was sent. kMismatch for anything else.
Result<Fields> parse_reply(Fields reply);

/// A field for each run of ranks that gave the same: their number, and what they gave. In most
/// exchanges all ranks give the same, and the reply, which every rank gets, must not grow with
/// them.
Fields to_runs(const Gathered& values);
/// kMismatch unless the runs are those of `size` ranks.
Result<Gathered> from_runs(const Fields& runs, std::size_t size);

/// A decimal number of at most nine digits; nothing for other text.
std::optional<int> parse_count(std::string_view text);

}  // namespace kolo
