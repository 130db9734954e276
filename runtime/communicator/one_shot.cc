#include "runtime/communicator/one_shot.h"

#include "runtime/base/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace kolo {
namespace {

constexpr std::size_t kOneShotBytes = 16 << 10;
/// What all slots together may hold, since every rank reads them all: with more bytes it pays to
/// divide the sum among the ranks.
constexpr std::size_t kBytesOfAllRanks = 32 << 10;
constexpr std::size_t kTwoShotBytes = 64 << 10;
constexpr std::size_t kCacheLine = 64;
/// Looks at a flag: longer than a store of a peer takes to become visible.
constexpr int kLooks = 100;

// A flag tells the number of the exchange, and what its rank takes it for.
constexpr std::uint64_t kNumberMask = 0xffffffff;
constexpr int kCountShift = 32;
constexpr std::uint64_t kCountMask = 0xfffff;
constexpr int kTypeShift = 52;
constexpr std::uint64_t kTypeMask = 0x3f;
constexpr int kOpShift = 58;
static_assert(kTwoShotBytes <= kCountMask);

std::uint64_t flag_for(std::uint64_t number, const OneShot::Request& request) {
  return (number & kNumberMask) | request.count << kCountShift |
         static_cast<std::uint64_t>(request.type) << kTypeShift |
         static_cast<std::uint64_t>(request.op) << kOpShift;
}

std::string to_text(std::uint64_t flag) {
  return fmt::format("{} {} by {}", flag >> kCountShift & kCountMask,
                     to_string(static_cast<DataType>(flag >> kTypeShift & kTypeMask)),
                     to_string(static_cast<ReduceOp>(flag >> kOpShift)));
}

}  // namespace

/// A flag with what fits beside it on its cache line.
struct alignas(kCacheLine) OneShot::Line {
  std::atomic<std::uint64_t> flag = 0;  ///< number of the exchange whose data is here
  std::byte data[56] = {};
};

struct alignas(kCacheLine) OneShot::Slot {
  Line line;
  alignas(kCacheLine) std::atomic<std::uint64_t> summed = 0;  ///< as a flag: the sum is here, too
  alignas(kCacheLine) std::byte data[kTwoShotBytes];
  std::byte sum[kTwoShotBytes / 2 + kCacheLine];  ///< the share of one rank of two at most
};

/// How a rank's window begins. Written by its rank alone.
struct alignas(kCacheLine) OneShot::Board {
  std::atomic<bool> asleep = false;
  Slot slots[2];
};

OneShot::OneShot(const Communicator& world, HostWindow& window, const Device& device,
                 ControlPlane& control_plane)
    : world_(world), window_(window), device_(device), control_plane_(control_plane) {
  static_assert(sizeof(Board) <= HostWindow::kBoardBytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
}

void OneShot::open() {
  if (!window_.covers(world_)) return;
  for (int rank = 0; rank < world_.size(); ++rank) {
    // Fresh memory of a window is zero, which is what a new board is.
    boards_.push_back(std::launder(reinterpret_cast<Board*>(window_.board(rank).data())));
  }
  sources_.resize(boards_.size());
  largest_one_shot_ = std::min(kOneShotBytes, kBytesOfAllRanks / boards_.size());
  largest_ = boards_.size() > 1 ? kTwoShotBytes : largest_one_shot_;
}

std::string_view OneShot::algorithm(const Request& request) const {
  return is_two_shot(request) ? "two_shot" : "one_shot";
}

OneShot::Slot& OneShot::slot_of(std::size_t rank) const {
  return boards_[rank]->slots[sequence_ % 2];
}

std::byte* OneShot::data_of(std::size_t rank) const {
  Slot& slot = slot_of(rank);
  return request_.bytes() <= sizeof(slot.line.data) ? slot.line.data : slot.data;
}

std::uint64_t OneShot::flag_of(std::size_t rank) const {
  const Slot& slot = slot_of(rank);
  const auto& flag = phase_ == Phase::kInputs ? slot.line.flag : slot.summed;
  return flag.load(std::memory_order_acquire);
}

bool OneShot::arrived(std::size_t rank) const {
  return ((flag_of(rank) ^ flag_) & kNumberMask) == 0;
}

std::uint64_t OneShot::share_begin(std::size_t rank) const {
  const std::uint64_t ranks = boards_.size();
  const std::uint64_t line = kCacheLine / size_of(request_.type);
  const std::uint64_t share = ((request_.count + ranks - 1) / ranks + line - 1) / line * line;
  return std::min(rank * share, request_.count);
}

void OneShot::begin(const Request& request) {
  KOLO_CHECK(!busy_ && takes(request.bytes()));
  request_ = request;
  ++sequence_;
  flag_ = flag_for(sequence_, request);
  publish_input();
  busy_ = true;
  phase_ = Phase::kInputs;
  next_ = 0;
  ring_sleepers();
}

void OneShot::publish_input() {
  const auto own = static_cast<std::size_t>(world_.rank());
  const std::size_t element = size_of(request_.type);
  const auto publish = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    device_.copy(request_.type, data_of(own) + begin * element, request_.input + begin * element,
                 end - begin, request_.prescale);
  };
  if (is_two_shot(request_) && request_.prescale.is_identity()) {
    // The own share is summed straight from the input.
    publish(0, share_begin(own));
    publish(share_begin(own + 1), request_.count);
  } else {
    publish(0, request_.count);
  }
  slot_of(own).line.flag.store(flag_, std::memory_order_release);
}

void OneShot::ring_sleepers() {
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    const bool is_own = rank == static_cast<std::size_t>(world_.rank());
    if (is_own || !boards_[rank]->asleep.load(std::memory_order_relaxed)) continue;
    // Whom no message reaches looks again by itself, soon.
    static_cast<void>(control_plane_.send(static_cast<int>(rank), MessageKind::kDoorbell, {}));
  }
}

bool OneShot::advance() {
  for (; next_ < boards_.size(); ++next_) {
    const std::uint64_t flag = flag_of(next_);
    if (flag == flag_) continue;
    if (((flag ^ flag_) & kNumberMask) != 0) return false;
    status_ = KOLO_ERROR(
        kMismatch,
        "rank {} reduces {} where rank {} reduces {}: all ranks must call allreduce_ordered() in "
        "the same order, with the same arguments",
        world_.rank(), to_text(flag_), next_, to_text(flag));
    return true;
  }
  if (!is_two_shot(request_)) {
    for (std::size_t rank = 0; rank < boards_.size(); ++rank) sources_[rank] = data_of(rank);
    device_.reduce(request_.type, request_.op, request_.output, sources_, request_.count,
                   request_.postscale);
  } else if (phase_ == Phase::kInputs) {
    publish_sum();
    phase_ = Phase::kSums;
    next_ = 0;
    ring_sleepers();
    return advance();
  } else {
    fetch_sums();
  }
  busy_ = false;
  return true;
}

void OneShot::publish_sum() {
  const auto own = static_cast<std::size_t>(world_.rank());
  const std::size_t element = size_of(request_.type);
  const std::size_t begin = share_begin(own) * element;
  const std::uint64_t count = share_begin(own + 1) - share_begin(own);
  Slot& slot = slot_of(own);
  if (count > 0) {
    for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
      const bool published = rank != own || !request_.prescale.is_identity();
      sources_[rank] = (published ? data_of(rank) : request_.input) + begin;
    }
    device_.reduce(request_.type, request_.op, request_.output + begin, sources_, count,
                   request_.postscale);
    std::memcpy(slot.sum, request_.output + begin, count * element);
  }
  slot.summed.store(flag_, std::memory_order_release);
}

void OneShot::fetch_sums() {
  const std::size_t element = size_of(request_.type);
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    if (rank == static_cast<std::size_t>(world_.rank())) continue;
    const std::uint64_t begin = share_begin(rank);
    const std::uint64_t count = share_begin(rank + 1) - begin;
    if (count == 0) continue;
    std::memcpy(request_.output + begin * element, slot_of(rank).sum, count * element);
  }
}

bool OneShot::fall_asleep() {
  if (!busy_) return true;
  asleep_ = true;
  std::atomic<bool>& asleep = boards_[static_cast<std::size_t>(world_.rank())]->asleep;
  asleep.store(true, std::memory_order_seq_cst);
  // A peer that did not see this yet has published before.
  for (int i = 0; i < kLooks; ++i) {
    if (arrived(next_)) return false;
  }
  return true;
}

void OneShot::wake_up() {
  if (!asleep_) return;
  asleep_ = false;
  boards_[static_cast<std::size_t>(world_.rank())]->asleep.store(false, std::memory_order_relaxed);
}

std::string OneShot::describe() const {
  std::vector<int> missing;
  for (std::size_t rank = next_; busy_ && rank < boards_.size(); ++rank) {
    if (!arrived(rank)) missing.push_back(static_cast<int>(rank));
  }
  return fmt::format("{} {} of {} bytes waits for ranks {}", algorithm(request_), sequence_,
                     request_.bytes(), fmt::join(missing, ", "));
}

}  // namespace kolo
