// Recursive halving reduce-scatter. Pure; the progress token holder calls it through the schedule
// cache when an operation starts. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 19 (2005), §4.4.
//
// p = 5 makes four members; rank 1 is folded into rank 0 (fold.h). What a rank sends:
//
//                 rank 0          rank 1          rank 2          rank 3          rank 4
//   fold          ·               all → 0         ·               ·               ·
//   d = 2         [3 4] → 3       ·               [3 4] → 4       [0 1 2] → 0     [0 1 2] → 2
//   d = 1         [2]   → 2       ·               [0 1] → 0       [4]   → 4       [3]   → 3
//   give back     [1]   → 1       ·               ·               ·               ·
//
// With q the largest power of two ≤ p, a member sends log₂ q messages, and one more if a rank is
// folded into it; a folded rank sends one. If p is a power of two, a rank sends Σ counts less its
// own part. A folded rank sends Σ counts, and its partner sends it its part.
//
// The input is not written, so the sums live in the scratch, at the offsets of the vector. Received
// parts lie behind them, at a new offset each round. The first sum reads the input; only what is
// sent before it is packed. Both operands come in member order. A member that stands for one rank
// sends inputs in its first round. Later messages are partial sums, except the final result for a
// folded rank.
#include "runtime/collectives/reduce_scatter_halving.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/fold.h"
#include "runtime/collectives/pipeline.h"

#include <utility>

namespace kolo {
namespace {

constexpr std::uint32_t kFoldTag = 0, kGiveBackTag = 1;  // within a pair

class HalvingReduceScatterWriter {
 public:
  HalvingReduceScatterWriter(int rank, int size, std::span<const std::uint64_t> counts)
      : rank_(rank),
        size_(size),
        counts_(counts),
        fold_(rank, size),
        count_(sum_of(counts)),
        slots_end_(round_to_line(count_)),
        builder_("reduce_scatter_halving", rank, size, count_,
                 counts[static_cast<std::size_t>(rank)]) {}

  Schedule write() &&;

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;

  Interval of_ranks(int first, int last) const {
    const std::uint64_t begin = sum_of(counts_.first(static_cast<std::size_t>(first)));
    return {begin, sum_of(counts_.first(static_cast<std::size_t>(last))) - begin};
  }
  Interval own() const { return of_ranks(rank_, rank_ + 1); }
  static constexpr std::uint64_t round_to_line(std::uint64_t elements) {
    return round_up(elements, kCacheLineElements);
  }
  static Operand sum_at(Interval part) { return {Space::kScratch, -1, part.begin, part.length}; }
  static Operand result(Interval part) { return {Space::kOutput, -1, 0, part.length}; }

  /// Sends sums, or the packed input while there are no sums.
  StepId send(int peer, std::uint32_t tag, Interval part, bool partial, StepId ready) {
    if (part.length == 0) return kNoStep;
    builder_.need_scratch(round_to_line(count_));
    if (ready == kNoStep) ready = builder_.copy(input_at(part), {sum_at(part)}, Scaling::kPre, {});
    return builder_.send(peer, tag, sum_at(part).as_partial(partial), {ready});
  }
  /// A message from a member, and whether it is the first operand of a sum.
  struct Incoming {
    int peer;
    std::uint32_t tag;
    Interval part;
    bool partial;
    bool first;
  };
  /// Receives a part and adds it to what this rank holds. The last time, each rank's part goes to
  /// its destination.
  StepId add(const Incoming& incoming, bool last, StepId ready);

  int rank_;
  int size_;
  std::span<const std::uint64_t> counts_;
  Fold fold_;
  std::uint64_t count_;
  std::uint64_t slots_end_;
  ScheduleBuilder builder_;
};

StepId HalvingReduceScatterWriter::add(const Incoming& incoming, bool last, StepId ready) {
  const Interval part = incoming.part;
  if (part.length == 0) return ready;
  const Operand landing{Space::kScratch, -1, slots_end_, part.length, Operand::kNowhere,
                        incoming.partial};
  slots_end_ += round_to_line(part.length);
  builder_.need_scratch(slots_end_);
  const StepId received = builder_.receive(incoming.peer, incoming.tag, landing, {});

  const bool of_input = ready == kNoStep;
  const auto reduce = [&](Interval some, Operand destination, Scaling scaling) {
    Operand other = landing;
    other.offset += some.begin - part.begin;
    other.length = some.length;
    const Operand held = of_input ? input_at(some) : sum_at(some).as_partial();
    return builder_.reduce({incoming.first ? held : other, incoming.first ? other : held},
                           {destination}, scaling, {received, ready});
  };
  if (!last)
    return reduce(part, sum_at(part).as_partial(), of_input ? Scaling::kPre : Scaling::kNone);

  const Scaling scaling = of_input ? Scaling::kBoth : Scaling::kPost;
  StepId added = kNoStep;
  if (own().length > 0) added = reduce(own(), result(own()), scaling);
  if (fold_.has_folded())
    if (const Interval theirs = of_ranks(rank_ + 1, rank_ + 2); theirs.length > 0)
      added = reduce(theirs, sum_at(theirs), scaling);
  return added;
}

Schedule HalvingReduceScatterWriter::write() && {
  if (size_ == 1) {
    if (own().length > 0) builder_.copy(input_at(own()), {result(own())}, Scaling::kBoth, {});
    return std::move(builder_).finish();
  }
  const Interval all{0, count_};
  if (fold_.is_folded()) {
    // The result may lie in the input, so the input must be packed first.
    const StepId sent = send(fold_.partner(), kFoldTag, all, false, kNoStep);
    if (own().length > 0) builder_.receive(fold_.partner(), kGiveBackTag, result(own()), {sent});
    return std::move(builder_).finish();
  }

  StepId ready = kNoStep;
  if (fold_.has_folded())
    ready = add({fold_.partner(), kFoldTag, all, false, true}, false, kNoStep);
  std::uint32_t tag = 0;
  for (int distance = fold_.members() / 2; distance > 0; distance /= 2, ++tag) {
    const int mine = round_down(fold_.member(), distance);  // the first member of the half kept
    const int other = fold_.member() ^ distance, partner = fold_.rank_of(other);
    const bool is_later = distance < fold_.members() / 2;
    const auto of_members = [&](int first) {
      return of_ranks(fold_.rank_of(first), fold_.rank_of(first + distance));
    };
    send(partner, tag, of_members(mine ^ distance), is_later || fold_.has_folded(), ready);
    ready = add({partner, tag, of_members(mine), is_later || fold_.is_pair(other), rank_ < partner},
                distance == 1, ready);
  }
  if (fold_.has_folded())
    send(fold_.partner(), kGiveBackTag, of_ranks(rank_ + 1, rank_ + 2), false, ready);
  return std::move(builder_).finish();
}

}  // namespace

Schedule reduce_scatter_halving(int rank, int size, std::span<const std::uint64_t> counts) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  return HalvingReduceScatterWriter(rank, size, counts).write();
}

}  // namespace kolo
