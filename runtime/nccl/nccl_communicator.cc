#include "runtime/nccl/nccl_communicator.h"

#include "runtime/base/check.h"

#include <thread>
#include <utility>

namespace kolo {
namespace {

/// NCCL has no way to block until it makes progress, and connecting takes tenths of a second.
constexpr std::chrono::microseconds kBetweenPolls{200};
constexpr std::chrono::seconds kFinishTimeout{5};

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclCommunicator::NcclCommunicator(NcclApi& api, Identity identity)
    : api_(api), identity_(std::move(identity)) {}

NcclCommunicator::~NcclCommunicator() {
  // If finish() times out it has aborted the communicator, and no caller is left to get the error.
  if (ready_ && !failed()) static_cast<void>(finish(Deadline::after(kFinishTimeout)));
  free_by_abort();
}

std::string NcclCommunicator::who() const {
  return fmt::format("rank {}{} ({}, device {})", identity_.world_rank, identity_.group,
                     to_string(identity_.uuid), identity_.ordinal);
}

void NcclCommunicator::free_by_abort() {
  if (handle_ == nullptr) return;
  // The handle is gone, whatever the result.
  static_cast<void>(api_.abort(std::exchange(handle_, nullptr)));
}

Error NcclCommunicator::fail(std::string_view call, NcclResult result) {
  if (failed()) return *failure_;
  const std::string said = api_.last_error(handle_);
  const bool is_remote = result == NcclResult::kRemoteError;
  failure_ = Error{is_remote ? ErrorCode::kPeerLost : ErrorCode::kDevice,
                   fmt::format("{}: NCCL {}: {}: {}{}{}; NCCL_DEBUG=INFO tells more", who(),
                               nccl_version_text(api_.version()), call, api_.error_string(result),
                               said.empty() ? "" : ": ", said),
                   __FILE__, __LINE__};
  free_by_abort();
  return *failure_;
}

Status NcclCommunicator::begin(const NcclUniqueId& id) {
  if (failed()) return *failure_;
  KOLO_CHECK(handle_ == nullptr);
  const NcclResult result =
      api_.init_rank(handle_, identity_.size, id, identity_.rank, identity_.ordinal);
  if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) return {};
  return fail("ncclCommInitRankConfig", result);
}

Result<bool> NcclCommunicator::poll() {
  if (failed()) return *failure_;
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = api_.async_error(handle_, state);
  if (asked != NcclResult::kSuccess) return fail("ncclCommGetAsyncError", asked);
  if (state == NcclResult::kInProgress) return false;
  if (state != NcclResult::kSuccess)
    return fail(ready_ ? "ncclAllReduce" : "ncclCommInitRankConfig", state);
  ready_ = true;
  return true;
}

Status NcclCommunicator::wait(Deadline deadline, const Abort* other) {
  for (;;) {
    KOLO_ASSIGN(const bool done, poll());
    if (done) return {};
    if (other != nullptr && other->raised()) {
      abort(other->error());
      return *failure_;
    }
    if (deadline.expired()) {
      abort(KOLO_ERROR(kTimeout,
                       "{}: NCCL {} has not {} with all {} ranks within the deadline: some rank is "
                       "missing or stuck; NCCL_DEBUG=INFO tells more",
                       who(), nccl_version_text(api_.version()),
                       ready_ ? "come to an end" : "connected", identity_.size));
      return *failure_;
    }
    std::this_thread::sleep_for(deadline.remaining(kBetweenPolls));
  }
}

Status NcclCommunicator::all_reduce(const NcclReduction& reduction, std::span<const Piece> pieces,
                                    void* native_stream) {
  if (failed()) return *failure_;
  KOLO_CHECK(ready_);
  NcclResult worst = api_.group_start();
  if (worst != NcclResult::kSuccess) return fail("ncclGroupStart", worst);
  for (const Piece& piece : pieces) {
    const NcclResult result =
        api_.all_reduce(piece.input, piece.output, piece.count * reduction.values, reduction.type,
                        reduction.op, handle_, native_stream);
    const bool fine = result == NcclResult::kSuccess || result == NcclResult::kInProgress;
    if (!fine && worst == NcclResult::kSuccess) worst = result;
  }
  // Always end a group that was started; otherwise NCCL would hold back all later calls of this
  // thread.
  const NcclResult ended = api_.group_end(handle_);
  if (worst != NcclResult::kSuccess) return fail("ncclAllReduce", worst);
  if (ended == NcclResult::kSuccess || ended == NcclResult::kInProgress) return {};
  return fail("ncclGroupEnd", ended);
}

void NcclCommunicator::abort(const Error& why) {
  if (!failed()) failure_ = why;
  free_by_abort();
}

Status NcclCommunicator::finish(Deadline deadline) {
  if (failed()) return *failure_;
  if (handle_ == nullptr) return {};
  KOLO_TRY(wait(deadline));
  const NcclResult result = api_.finalize(handle_);
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress)
    return fail("ncclCommFinalize", result);
  KOLO_TRY(wait(deadline));
  const NcclResult destroyed = api_.destroy(std::exchange(handle_, nullptr));
  ready_ = false;
  if (destroyed == NcclResult::kSuccess) return {};
  return fail("ncclCommDestroy", destroyed);
}

}  // namespace kolo
