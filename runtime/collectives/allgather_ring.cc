// Ring allgather. Called through the schedule cache when an operation starts, by the holder of the
// progress token; pure. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 19 (2005), §4.1; here each part goes in chunks, so
// that a part much longer than the others runs round the ring as a pipeline.
//
// p = 3, in order of rank. Rank r talks to r+1 and hears r−1; [c] is the part of rank c.
//
//        rank 0               rank 1               rank 2
//   s=0  send [0]  get [2]    send [1]  get [0]    send [2]  get [1]    sent from kInput
//   s=1  send [2]  get [1]    send [0]  get [2]    send [1]  get [0]    sent on from kOutput
//        copy [0]             copy [1]             copy [2]             unless in place
//
// With n(c) chunks of part c: a rank has Σ n − n(r+1) sends, Σ n − n(r) receives and 1 copy.
// Elements sent by all ranks: (p−1) · Σ counts. A chunk is sent on as soon as it is there; chunks
// go over a link in order of (s, chunk) at both ends, so the windows cannot lock each other out.
#include "runtime/collectives/allgather_ring.h"

#include "runtime/base/check.h"
#include "runtime/collectives/ring_order.h"

#include <utility>
#include <vector>

namespace kolo {

Schedule allgather_ring(int rank, int size, std::span<const std::uint64_t> counts,
                        const AllgatherOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  const std::vector<Interval> parts = end_to_end(counts);
  const Interval own = parts[static_cast<std::size_t>(rank)];
  ScheduleBuilder builder("allgather_ring", rank, size, own.length, sum_of(counts));

  std::vector<Pieces> pieces;
  std::vector<std::uint32_t> first_tag;
  std::uint64_t tags = 0;
  for (const Interval part : parts) {
    pieces.emplace_back(part, options.pipeline.chunk_elements);
    first_tag.push_back(static_cast<std::uint32_t>(tags));
    tags += pieces.back().count();
    KOLO_CHECK(tags < UINT32_MAX);  // tags are 32 bits wide
  }

  const RingOrder ring(rank, size, options.order);
  const int next = ring.after(1);
  const int previous = ring.after(-1);
  MessageWindow sent(options.pipeline.chunks_in_flight);
  MessageWindow received(options.pipeline.chunks_in_flight);
  // By chunk of the part that is sent next: what makes it complete.
  std::vector<StepId> ready(pieces[static_cast<std::size_t>(rank)].count(),
                            ScheduleBuilder::kNoStep);
  for (int s = 0; s < size - 1; ++s) {
    const auto outgoing = static_cast<std::size_t>(ring.after(-s));
    for (std::uint32_t i = 0; i < pieces[outgoing].count(); ++i) {
      const Interval place = pieces[outgoing][i];
      const bool from_input = s == 0 && !options.in_place;
      const Operand source =
          from_input ? input_at({place.begin - own.begin, place.length}) : output_at(place);
      sent.push(builder.send(next, first_tag[outgoing] + i, source, {ready[i], sent.gate()}));
    }
    const auto incoming = static_cast<std::size_t>(ring.after(-s - 1));
    ready.clear();
    for (std::uint32_t i = 0; i < pieces[incoming].count(); ++i) {
      ready.push_back(builder.receive(previous, first_tag[incoming] + i,
                                      output_at(pieces[incoming][i]), {received.gate()}));
      received.push(ready.back());
    }
  }
  if (own.length > 0 && !options.in_place)
    builder.copy(input_at({0, own.length}), {output_at(own)}, Scaling::kNone, {});
  return std::move(builder).finish();
}

}  // namespace kolo
