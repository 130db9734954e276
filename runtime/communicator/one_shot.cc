#include "runtime/communicator/one_shot.h"

#include "runtime/base/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

namespace kolo {
namespace {

constexpr std::size_t kSlotBytes = 16 << 10;
/// What all slots together may hold, since every rank reads them all: with more bytes it pays to
/// divide the sum among the ranks.
constexpr std::size_t kBytesOfAllRanks = 32 << 10;
/// Looks at a flag: longer than a store of a peer takes to become visible.
constexpr int kLooks = 100;

}  // namespace

// A flag tells the number of the exchange, and what its rank takes it for.
constexpr std::uint64_t kNumberMask = 0xffffffff;
constexpr int kCountShift = 32;
constexpr int kTypeShift = 48;
constexpr int kOpShift = 56;

std::uint64_t flag_for(std::uint64_t number, const OneShot::Request& request) {
  return (number & kNumberMask) | request.count << kCountShift |
         static_cast<std::uint64_t>(request.type) << kTypeShift |
         static_cast<std::uint64_t>(request.op) << kOpShift;
}

std::string to_text(std::uint64_t flag) {
  return fmt::format("{} {} by {}", flag >> kCountShift & 0xffff,
                     to_string(static_cast<DataType>(flag >> kTypeShift & 0xff)),
                     to_string(static_cast<ReduceOp>(flag >> kOpShift)));
}

/// A flag with what fits beside it on its cache line.
struct alignas(64) OneShot::Line {
  std::atomic<std::uint64_t> flag = 0;  ///< number of the exchange whose data is here
  std::byte data[56] = {};
};

/// How a rank's window begins. Written by its rank alone.
struct alignas(64) OneShot::Board {
  std::atomic<bool> asleep = false;
  struct alignas(64) Slot {
    Line line;
    std::byte data[kSlotBytes];
  };
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
  largest_ = std::min(kSlotBytes, kBytesOfAllRanks / boards_.size());
}

OneShot::Line& OneShot::line_of(std::size_t rank) const {
  return boards_[rank]->slots[sequence_ % 2].line;
}

std::byte* OneShot::data_of(std::size_t rank) const {
  Board::Slot& slot = boards_[rank]->slots[sequence_ % 2];
  return request_.bytes() <= sizeof(slot.line.data) ? slot.line.data : slot.data;
}

std::uint64_t OneShot::flag_of(std::size_t rank) const {
  return line_of(rank).flag.load(std::memory_order_acquire);
}

bool OneShot::arrived(std::size_t rank) const {
  return ((flag_of(rank) ^ flag_) & kNumberMask) == 0;
}

void OneShot::begin(const Request& request) {
  KOLO_CHECK(!busy_ && takes(request.bytes()));
  request_ = request;
  ++sequence_;
  const auto own = static_cast<std::size_t>(world_.rank());
  device_.copy(request.type, data_of(own), request.input, request.count, request.prescale);
  flag_ = flag_for(sequence_, request);
  line_of(own).flag.store(flag_, std::memory_order_release);
  busy_ = true;
  next_ = 0;
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    if (rank == own || !boards_[rank]->asleep.load(std::memory_order_relaxed)) continue;
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
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) sources_[rank] = data_of(rank);
  device_.reduce(request_.type, request_.op, request_.output, sources_, request_.count,
                 request_.postscale);
  busy_ = false;
  return true;
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
  return fmt::format("one-shot exchange {} of {} bytes waits for ranks {}", sequence_,
                     request_.bytes(), fmt::join(missing, ", "));
}

}  // namespace kolo
