// Messages between two ranks. Any thread.
#include "bindings/core/messages.h"

#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {
namespace {

std::shared_ptr<Work> start(std::string_view call, Submission submission, std::int64_t count,
                            DataType type, int peer, const MessageOptions& options) {
  submission.signature.type = type;
  submission.signature.shape = {count};
  submission.signature.root = peer;
  submission.tag = options.tag;
  submission.keep_alive = options.keep_alive;
  submission.process_set = options.process_set.id();
  submission.stream = options.stream;
  return value_or_throw(runtime_for(call)->submit_message(std::move(submission)));
}

}  // namespace

std::shared_ptr<Work> send_async(const void* buffer, std::int64_t count, DataType type, int to,
                                 const MessageOptions& options) {
  Submission submission;
  submission.signature.kind = OperationKind::kSend;
  submission.input = static_cast<const std::byte*>(buffer);
  return start("send_async", std::move(submission), count, type, to, options);
}

void send(const void* buffer, std::int64_t count, DataType type, int to,
          const MessageOptions& options) {
  finish(*send_async(buffer, count, type, to, options), options.stream);
}

std::shared_ptr<Work> recv_async(void* buffer, std::int64_t count, DataType type, int from,
                                 const MessageOptions& options) {
  Submission submission;
  submission.signature.kind = OperationKind::kReceive;
  submission.output = static_cast<std::byte*>(buffer);
  return start("recv_async", std::move(submission), count, type, from, options);
}

std::shared_ptr<Work> recv_from_any_async(void* buffer, std::int64_t count, DataType type,
                                          const MessageOptions& options) {
  return recv_async(buffer, count, type, kAnyRank, options);
}

void recv(void* buffer, std::int64_t count, DataType type, int from,
          const MessageOptions& options) {
  finish(*recv_async(buffer, count, type, from, options), options.stream);
}

}  // namespace kolo
