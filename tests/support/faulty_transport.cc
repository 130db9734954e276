#include "tests/support/faulty_transport.h"

#include "runtime/base/check.h"
#include "transport/wait.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace kolo::test {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kLongestDelay = 20;

const char* name_of(FaultyCall::Kind kind) {
  switch (kind) {
    case FaultyCall::Kind::kSend:
      return "send to";
    case FaultyCall::Kind::kReceive:
      return "receive from";
    case FaultyCall::Kind::kMessage:
      return "message to";
  }
  return "?";
}

bool in_one_order(const FaultyCall& a, const FaultyCall& b) {
  return a.kind == b.kind && a.peer == b.peer && a.tag == b.tag;
}

/// A region of a transport that starves.
class StarvingRegion final : public MemoryRegion {
 public:
  StarvingRegion(std::unique_ptr<MemoryRegion> inner, const std::atomic<bool>& starving)
      : inner_(std::move(inner)), starving_(starving) {}
  std::span<std::byte> bytes() const override { return inner_->bytes(); }
  std::string key() const override { return inner_->key(); }
  Status commit(std::size_t offset, std::size_t bytes) override {
    if (starving_) return KOLO_ERROR(kOutOfMemory, "injected lack of {} bytes", bytes);
    return inner_->commit(offset, bytes);
  }
  void discard(std::size_t offset, std::size_t bytes) override { inner_->discard(offset, bytes); }

 private:
  std::unique_ptr<MemoryRegion> inner_;
  const std::atomic<bool>& starving_;
};

}  // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, Decide decide, unsigned seed)
    : ForwardingTransport(std::move(inner)), decide_(std::move(decide)), random_(seed) {}

FaultyTransport::~FaultyTransport() = default;

void FaultyTransport::lose(int peer) { lost_.emplace(peer, false); }

std::string FaultyTransport::description() const {
  return fmt::format("{} with faults", inner_->description());
}

Status FaultyTransport::connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                                const Abort& abort, Deadline deadline) {
  rank_ = rank;
  size_ = static_cast<int>(peers.size());
  listener_ = &listener;
  return inner_->connect(rank, std::move(peers), listener, abort, deadline);
}

Fault FaultyTransport::decide(FaultyCall& call) {
  call.number = counts_[static_cast<std::size_t>(call.kind)]++;
  const bool refused = failure_ || call.peer < 0 || call.peer >= size_;  // by the inner transport
  if (refused) return Fault::kNone;
  if (lost_.contains(call.peer) && call.kind != FaultyCall::Kind::kReceive) return Fault::kFail;
  const Fault fault = decide_ ? decide_(call) : Fault::kNone;
  if (fault == Fault::kNone && follows_a_held_one(call)) return Fault::kDelay;
  return fault;
}

bool FaultyTransport::follows_a_held_one(const FaultyCall& call) const {
  return std::any_of(held_.begin(), held_.end(), [&call](const Held& held) {
    return held.due != kNever && in_one_order(held.call, call);
  });
}

Error FaultyTransport::injected(const FaultyCall& call) const {
  return KOLO_ERROR(kTransport, "rank {}: injected fault in {} rank {} (step {}, operation {})",
                    rank_, name_of(call.kind), call.peer, call.tag.step, call.tag.operation);
}

void FaultyTransport::hold(Held held, Fault fault) {
  held.due = fault == Fault::kDrop ? kNever : now_ + 1 + random_() % kLongestDelay;
  for (const Held& earlier : held_) {
    if (earlier.due != kNever && in_one_order(earlier.call, held.call)) {
      held.due = std::max(held.due, earlier.due);
    }
  }
  held_.push_back(std::move(held));
}

std::span<std::byte> FaultyTransport::damaged(std::span<const std::byte> data) {
  auto& copy = damaged_.emplace_back(data.begin(), data.end());
  if (!copy.empty()) copy[random_() % copy.size()] ^= std::byte{1} << (random_() % 8);
  return copy;
}

void FaultyTransport::let_go(Held held) {
  switch (held.call.kind) {
    case FaultyCall::Kind::kSend:
      inner_->send(held.call.peer, held.call.tag, held.data, *held.transfer);
      return;
    case FaultyCall::Kind::kReceive:
      inner_->receive(held.call.peer, held.call.tag, held.data, *held.transfer);
      return;
    case FaultyCall::Kind::kMessage:
      // The caller was told that the message went; the loss of a peer is reported by other means.
      static_cast<void>(inner_->post_message(held.call.peer, held.message));
      return;
  }
}

void FaultyTransport::transfer_call(FaultyCall call, std::span<std::byte> data,
                                    Transfer& transfer) {
  const Fault fault = decide(call);
  Held held{.call = call, .transfer = &transfer, .data = data, .message = {}};
  switch (fault) {
    case Fault::kNone:
      let_go(std::move(held));
      return;
    case Fault::kDelay:
    case Fault::kDrop:
      transfer.start();
      hold(std::move(held), fault);
      return;
    case Fault::kFail:
      transfer.start();
      transfer.finish(injected(call));
      return;
    case Fault::kDamage:
      if (call.kind == FaultyCall::Kind::kSend) held.data = damaged(data);
      let_go(std::move(held));
      return;
  }
}

void FaultyTransport::send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) {
  transfer_call({.kind = FaultyCall::Kind::kSend, .peer = peer, .tag = tag, .length = data.size()},
                {const_cast<std::byte*>(data.data()), data.size()}, transfer);
}

void FaultyTransport::receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) {
  transfer_call(
      {.kind = FaultyCall::Kind::kReceive, .peer = peer, .tag = tag, .length = data.size()}, data,
      transfer);
}

Status FaultyTransport::post_message(int peer, std::span<const std::byte> message) {
  FaultyCall call{
      .kind = FaultyCall::Kind::kMessage, .peer = peer, .tag = {}, .length = message.size()};
  const Fault fault = decide(call);
  switch (fault) {
    case Fault::kNone:
      return inner_->post_message(peer, message);
    case Fault::kDelay:
      hold({.call = call, .data = {}, .message = {message.begin(), message.end()}}, fault);
      return {};
    case Fault::kDrop:
      return {};
    case Fault::kFail:
      return injected(call);
    case Fault::kDamage:
      return inner_->post_message(peer, damaged(message));
  }
  return {};
}

bool FaultyTransport::progress() {
  ++now_;
  bool any = false;
  for (auto& [peer, reported] : lost_) {
    if (failure_ || listener_ == nullptr || std::exchange(reported, true)) continue;
    listener_->on_peer_failed(peer, KOLO_ERROR(kPeerLost, "rank {}: rank {} is lost", rank_, peer));
    any = true;
  }
  // A released call may post others, which may be held in turn.
  for (bool found = true; found;) {
    const auto due = std::find_if(held_.begin(), held_.end(),
                                  [this](const Held& held) { return held.due <= now_; });
    found = due != held_.end();
    if (!found) break;
    Held held = std::move(*due);
    held_.erase(due);
    let_go(std::move(held));
    any = true;
  }
  if (deaf_ != nullptr && *deaf_) return any;
  return inner_->progress() || any;
}

bool FaultyTransport::arm() {
  const auto pending = [](const Held& held) { return held.due != kNever; };
  if (std::any_of(held_.begin(), held_.end(), pending)) return false;
  for (const auto& [peer, reported] : lost_) {
    if (!reported) return false;
  }
  return inner_->arm();
}

Result<std::unique_ptr<MemoryRegion>> FaultyTransport::allocate_mappable(std::size_t bytes) {
  if (starving_ == nullptr) return inner_->allocate_mappable(bytes);
  KOLO_ASSIGN(auto region, inner_->allocate_mappable(bytes));
  return std::unique_ptr<MemoryRegion>(
      std::make_unique<StarvingRegion>(std::move(region), *starving_));
}

Status FaultyTransport::flush(const Abort& abort, Deadline deadline) {
  const auto nothing_held = [this] {
    return std::none_of(held_.begin(), held_.end(), [](const Held& held) {
      return held.call.kind != FaultyCall::Kind::kReceive;
    });
  };
  KOLO_TRY(progress_until(*this, nothing_held, abort, deadline,
                          fmt::format("rank {} flushed its sends", rank_)));
  return inner_->flush(abort, deadline);
}

void FaultyTransport::fail_all(const Error& error) {
  failure_ = error;
  inner_->fail_all(error);
  for (Held& held : std::exchange(held_, {})) {
    if (held.transfer != nullptr) held.transfer->finish(error);
  }
}

}  // namespace kolo::test
