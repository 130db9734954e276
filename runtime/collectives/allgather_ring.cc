// Ring allgather. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (2005), §4.1. Here each part is sent in chunks, so a part much
// longer than the others is pipelined around the ring.
//
// p = 3, in rank order. Rank r sends to r+1 and receives from r−1; [c] is the part of rank c.
//
//        rank 0               rank 1               rank 2
//   s=0  send [0]  get [2]    send [1]  get [0]    send [2]  get [1]    sent from kInput
//   s=1  send [2]  get [1]    send [0]  get [2]    send [1]  get [0]    sent on from kOutput
//        copy [0]             copy [1]             copy [2]             unless in place
//
// With n(c) chunks of part c, a rank makes Σ n − n(r+1) sends, Σ n − n(r) receives and 1 copy. All
// ranks together send (p−1) · Σ counts elements. A chunk is forwarded as soon as it arrives. Both
// ends of a link use the order (s, chunk), so the message windows cannot deadlock.
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
  // By chunk of the part that is sent next: the step that completes the chunk.
  std::vector<StepId> ready(pieces[static_cast<std::size_t>(rank)].count(),
                            ScheduleBuilder::kNoStep);
  for (int s = 0; s < size - 1; ++s) {
    const auto outgoing = static_cast<std::size_t>(ring.after(-s));
    for (std::uint32_t i = 0; i < pieces[outgoing].count(); ++i) {
      const Interval piece = pieces[outgoing][i];
      const bool from_input = s == 0 && !options.in_place;
      const Operand source =
          from_input ? input_at({piece.begin - own.begin, piece.length}) : output_at(piece);
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
