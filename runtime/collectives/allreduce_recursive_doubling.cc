// Recursive doubling. Used for few elements, where the number of messages dominates the cost, and
// for Adasum, which combines whole vectors. Pure; the progress token holder calls it through the
// schedule cache when an operation starts. Idea: Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", IJHPCA 2005; for Adasum, Maleki et al., "Scaling
// distributed training with adaptive summation", MLSys 2021. Maleki et al. also halve the vectors,
// which pays for long ones.
//
// p = 5; q = 4 is the largest power of two ≤ p. A is the rank's vector, B the received one:
//
//             rank 0           rank 1           rank 2           rank 3           rank 4
//             in → A           in → A           in → A           in → A           in → A
//   fold      get 4            ·                ·                ·                send 0
//             A = A + B
//   d = 2     ↔ 2  A = A + B   ↔ 3  A = A + B   ↔ 0  A = B + A   ↔ 1  A = B + A   ·
//   d = 1     ↔ 1  A = A + B   ↔ 0  A = B + A   ↔ 3  A = A + B   ↔ 2  A = B + A   ·
//   give back send 4           ·                ·                ·                get 0 → A
//             A → out          A → out          A → out          A → out          A → out
//
// The last sum is scaled. All messages before it are partial sums, except inputs: those of the
// fold, and those of the first round from ranks that have folded no rank in.
//
// A rank below q makes log₂ q sends, receives and reduces, and 2 copies. If a rank is folded into
// it, it makes one more of each, the final send included. Each message has count elements. Both
// partners put the lower rank's vector first, so all ranks get the same bits. The summation tree is
// that of allreduce_halving_doubling, so both algorithms give the same bits.
#include "runtime/collectives/allreduce_recursive_doubling.h"

#include <bit>
#include <utility>

namespace kolo {

Schedule allreduce_recursive_doubling(int rank, int size, std::uint64_t count) {
  ScheduleBuilder builder("allreduce_recursive_doubling", rank, size, count);
  if (count == 0) return std::move(builder).finish();
  const Operand input{Space::kInput, -1, 0, count}, output{Space::kOutput, -1, 0, count};
  if (size == 1) {
    builder.copy(input, {output}, Scaling::kBoth, {});
    return std::move(builder).finish();
  }

  const auto doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const Operand own{Space::kScratch, -1, 0, count}, other{Space::kScratch, -1, count, count};
  builder.need_scratch(2 * count);
  StepId ready = builder.copy(input, {own}, Scaling::kPre, {});
  std::uint32_t tag = 0;

  if (rank >= doubling) {
    const int partner = rank - doubling;
    const StepId sent = builder.send(partner, 0, own, {ready});
    ready = builder.receive(partner, 1, own, {sent});
  } else {
    // `idle` is the step after which the receive slot is free again.
    StepId idle = ScheduleBuilder::kNoStep;
    const auto has_extra = [&](int member) { return member + doubling < size; };
    if (has_extra(rank)) {
      const StepId received = builder.receive(rank + doubling, 0, other, {});
      ready = idle =
          builder.reduce({own, other}, {own.as_partial()}, Scaling::kNone, {ready, received});
    }
    for (int distance = doubling / 2; distance > 0; distance /= 2, ++tag) {
      const int partner = rank ^ distance;
      const bool first = distance == doubling / 2, last = distance == 1, lower = rank < partner;
      const Operand mine = own.as_partial(!first || has_extra(rank));
      const Operand theirs = other.as_partial(!first || has_extra(partner));
      const StepId sent = builder.send(partner, tag, mine, {ready});
      const StepId received = builder.receive(partner, tag, theirs, {idle});
      ready = idle =
          builder.reduce({lower ? mine : theirs, lower ? theirs : mine}, {own.as_partial(!last)},
                         last ? Scaling::kPost : Scaling::kNone, {sent, received});
    }
    if (has_extra(rank)) builder.send(rank + doubling, 1, own, {ready});
  }
  builder.copy(own, {output}, Scaling::kNone, {ready});
  return std::move(builder).finish();
}

}  // namespace kolo
