#include "runtime/nccl/nccl_allreduce.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo {

Status NcclAllreduce::start(NcclCommunicators& communicators, SubmissionMode mode,
                            DeviceStream& stream, Plan plan) {
  KOLO_ASSIGN(reduction_, nccl_reduction(plan.type, plan.op));
  KOLO_CHECK(plan.pieces.size() == 1 || plan.buffer != nullptr);
  communicators_ = &communicators;
  mode_ = mode;
  stream_ = &stream;
  plan_ = std::move(plan);
  turn_ = communicators.take_turn(mode);
  state_ = State::kWaits;
  return {};
}

Result<bool> NcclAllreduce::advance() {
  if (state_ == State::kHandedIn) return true;
  if (!communicators_->has_turn(mode_, turn_)) return false;
  KOLO_ASSIGN(NcclCommunicator* const communicator, communicators_->get(mode_));
  if (communicator == nullptr) return false;
  KOLO_ASSIGN(const bool ready, communicator->poll());
  if (!ready) return false;
  if (state_ == State::kWaits) {
    KOLO_TRY(enqueue(*communicator));
    state_ = State::kIssues;
    // Nothing may be enqueued on the stream before NCCL has enqueued its part.
    KOLO_ASSIGN(const bool issued, communicator->poll());
    if (!issued) return false;
  }
  KOLO_TRY(copy(false));
  communicators_->end_turn(mode_);
  state_ = State::kHandedIn;
  return true;
}

Status NcclAllreduce::check() {
  KOLO_ASSIGN(NcclCommunicator* const communicator, communicators_->get(mode_));
  const auto state = communicator->poll();
  return state.ok() ? Status() : Status(state.error());
}

std::string NcclAllreduce::describe() const {
  switch (state_) {
    case State::kWaits:
      return fmt::format("waits for its turn, {}, and for NCCL to be ready", turn_);
    case State::kIssues:
      return "NCCL is putting it on the stream";
    case State::kHandedIn:
      break;
  }
  return "ncclAllReduce is on the stream, and waits there for the device or for other ranks";
}

Status NcclAllreduce::enqueue(NcclCommunicator& communicator) {
  KOLO_TRY(copy(true));
  NcclCommunicator::Piece whole = plan_.pieces.front();
  if (plan_.buffer != nullptr) {
    whole = {plan_.buffer, plan_.buffer, 0};
    for (const auto& piece : plan_.pieces) whole.count += piece.count;
  } else if (!plan_.prescale.is_identity()) {
    whole.input = whole.output;
  }
  if (whole.count == 0) return {};
  return communicator.all_reduce(reduction_, {&whole, 1}, stream_->native());
}

// Copies into the buffer (pack) or out of it. Without a buffer there is a single tensor, which is
// only scaled in place, if needed.
Status NcclAllreduce::copy(bool pack) {
  const Scale& scale = pack ? plan_.prescale : plan_.postscale;
  if (plan_.buffer == nullptr && scale.is_identity()) return {};
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  std::vector<std::uint64_t> counts;
  std::byte* buffered = plan_.buffer;
  for (const auto& piece : plan_.pieces) {
    const std::byte* const result = buffered == nullptr ? piece.output : buffered;
    sources.push_back(pack ? piece.input : result);
    destinations.push_back(pack && buffered != nullptr ? buffered : piece.output);
    counts.push_back(piece.count);
    if (buffered != nullptr) buffered += piece.count * size_of(plan_.type);
  }
  Combination what{.type = plan_.type};
  if (pack) {
    what.prescaled = 1;
    what.prescale = scale;
  } else {
    what.postscale = scale;
  }
  return stream_->combine(what, {sources, destinations, counts});
}

}  // namespace kolo
