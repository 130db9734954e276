// Recursive halving and doubling. Pure; the progress token holder calls it through the schedule
// cache when an operation starts. Idea: Rabenseifner, "Optimization of collective reduction
// operations", ICCS 2004. Partners exchange and sum halves until each rank has one part of the sum.
// Then they exchange parts until each rank has all of them.
//
// p = 5; q = 4 is the largest power of two ≤ p. A[0 … 3] are the quarters of the rank's vector:
//
//             rank 0           rank 1           rank 2           rank 3           rank 4
//             in → A           in → A           in → A           in → A           in → A
//   fold      A += rank 4's    ·                ·                ·                send 0
//   d = 2     ↔ 2  A[01] +=    ↔ 3  A[01] +=    ↔ 0  A[23] +=    ↔ 1  A[23] +=    ·
//   d = 1     ↔ 1  A[0] +=     ↔ 0  A[1] +=     ↔ 3  A[2] +=     ↔ 2  A[3] +=     ·
//   d = 1     ↔ 1  A[1] =      ↔ 0  A[0] =      ↔ 3  A[3] =      ↔ 2  A[2] =      ·
//   d = 2     ↔ 2  A[23] =     ↔ 3  A[23] =     ↔ 0  A[01] =     ↔ 1  A[01] =     ·
//   give back send 4           ·                ·                ·                get 0 → A
//             A → out          A → out          A → out          A → out          A → out
//
// A rank below q sends 2·log₂ q messages with 2·count·(q−1)/q elements, and one more of count
// elements if a rank is folded into it. Each sum puts the lower rank's elements first. So every
// element has the summation tree of allreduce_recursive_doubling, whatever part it is in. Messages
// of the first phase are partial sums, except the inputs of the fold and of the first round.
#include "runtime/collectives/allreduce_halving_doubling.h"

#include "runtime/collectives/split.h"

#include <bit>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class HalvingWriter {
 public:
  HalvingWriter(int rank, int size, std::uint64_t count)
      : rank_(rank),
        size_(size),
        count_(count),
        builder_("allreduce_halving_doubling", rank, size, count) {}

  Schedule write() &&;

 private:
  /// A round: the partner, the half that this rank keeps and the half that it sends.
  struct Round {
    int partner;
    Interval kept;
    Interval given;
    bool sends_partial;     ///< the half that is sent is a partial sum, not an input
    bool receives_partial;  ///< the half that is received is a partial sum
  };

  Operand own(Interval part) const { return {Space::kScratch, -1, part.begin, part.length}; }
  Operand other(Interval part) const {
    return {Space::kScratch, -1, count_ + part.begin, part.length};
  }
  int halving() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(size_))); }
  bool has_extra(int rank) const { return rank + halving() < size_; }
  void halve(Interval part, int distance);
  void fold_in(int extra);
  void reduce_scatter();
  void allgather();
  StepId send(const Round& round, Operand source);
  StepId receive(const Round& round, Operand destination, StepId after);

  int rank_;
  int size_;
  std::uint64_t count_;
  ScheduleBuilder builder_;
  std::vector<Round> rounds_;
  StepId ready_ = ScheduleBuilder::kNoStep;  ///< own() holds the result of the last round
  StepId idle_ = ScheduleBuilder::kNoStep;   ///< other() has been read
  std::uint32_t tag_ = 1;                    ///< tag of the round; 0 is the fold's
};

void HalvingWriter::halve(Interval part, int distance) {
  const std::uint64_t granule = part.length >= 2 * kCacheLineElements ? kCacheLineElements : 1;
  const Interval low = split(part, 2, 0, granule), high = split(part, 2, 1, granule);
  const bool is_low = (rank_ & distance) == 0;
  const bool first = rounds_.empty();
  const int partner = rank_ ^ distance;
  rounds_.push_back({partner, is_low ? low : high, is_low ? high : low, !first || has_extra(rank_),
                     !first || has_extra(partner)});
}

StepId HalvingWriter::send(const Round& round, Operand source) {
  if (source.length == 0) return ScheduleBuilder::kNoStep;
  return builder_.send(round.partner, tag_, source, {ready_});
}

StepId HalvingWriter::receive(const Round& round, Operand destination, StepId after) {
  if (destination.length == 0) return ScheduleBuilder::kNoStep;
  return builder_.receive(round.partner, tag_, destination, {after});
}

void HalvingWriter::fold_in(int extra) {
  const Interval all{0, count_};
  const StepId received = builder_.receive(extra, 0, other(all), {});
  ready_ = idle_ = builder_.reduce({own(all), other(all)}, {own(all).as_partial()}, Scaling::kNone,
                                   {ready_, received});
}

void HalvingWriter::reduce_scatter() {
  for (const Round& round : rounds_) {
    const Operand mine = own(round.kept).as_partial(round.sends_partial);
    const Operand theirs = other(round.kept).as_partial(round.receives_partial);
    const StepId sent = send(round, own(round.given).as_partial(round.sends_partial));
    const StepId received = receive(round, theirs, idle_);
    ++tag_;
    StepId reduced = ScheduleBuilder::kNoStep;
    if (round.kept.length > 0) {
      const bool lower = rank_ < round.partner;
      const bool last = &round == &rounds_.back();
      reduced = builder_.reduce({lower ? mine : theirs, lower ? theirs : mine},
                                {own(round.kept).as_partial(!last)},
                                last ? Scaling::kPost : Scaling::kNone, {ready_, received});
    }
    // The half that was sent is overwritten only after its send is done.
    ready_ = builder_.join(std::vector<StepId>{ready_, sent, reduced});
    idle_ = reduced;
  }
}

void HalvingWriter::allgather() {
  for (auto round = rounds_.rbegin(); round != rounds_.rend(); ++round) {
    const StepId sent = send(*round, own(round->kept));
    const StepId received = receive(*round, own(round->given), ready_);
    ++tag_;
    ready_ = builder_.join(std::vector<StepId>{ready_, sent, received});
  }
}

Schedule HalvingWriter::write() && {
  if (count_ == 0) return std::move(builder_).finish();
  const Interval all{0, count_};
  const Operand input{Space::kInput, -1, 0, count_}, output{Space::kOutput, -1, 0, count_};
  if (size_ == 1) {
    builder_.copy(input, {output}, Scaling::kBoth, {});
    return std::move(builder_).finish();
  }
  const bool is_extra = rank_ >= halving();
  builder_.need_scratch(is_extra ? count_ : 2 * count_);
  ready_ = builder_.copy(input, {own(all)}, Scaling::kPre, {});
  if (is_extra) {
    const StepId sent = builder_.send(rank_ - halving(), 0, own(all), {ready_});
    ready_ = builder_.receive(rank_ - halving(), UINT32_MAX, own(all), {sent});
  } else {
    const int extra = rank_ + halving();
    if (extra < size_) fold_in(extra);
    Interval part = all;
    for (int distance = halving() / 2; distance > 0; distance /= 2) {
      halve(part, distance);
      part = rounds_.back().kept;
    }
    reduce_scatter();
    allgather();
    if (extra < size_) builder_.send(extra, UINT32_MAX, own(all), {ready_});
  }
  builder_.copy(own(all), {output}, Scaling::kNone, {ready_});
  return std::move(builder_).finish();
}

}  // namespace

Schedule allreduce_halving_doubling(int rank, int size, std::uint64_t count) {
  return HalvingWriter(rank, size, count).write();
}

}  // namespace kolo
