// Pairwise alltoall. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (2005), §4.4, the variant for any number of ranks. In each step
// every rank sends to one rank and receives from one, so no receiver is overrun.
//
// p = 4; i→j is the part from rank i to rank j:
//
//        rank 0              rank 1              rank 2              rank 3
//        copy 0→0            copy 1→1            copy 2→2            copy 3→3
//   k=1  send 0→1 get 3→0    send 1→2 get 0→1    send 2→3 get 1→2    send 3→0 get 2→3
//   k=2  send 0→2 get 2→0    send 1→3 get 3→1    send 2→0 get 0→2    send 3→1 get 1→3
//   k=3  send 0→3 get 1→0    send 1→0 get 2→1    send 2→1 get 3→2    send 3→2 get 0→3
//
// A rank sends as many messages as its parts have chunks: p−1 if every part fits into one. It sends
// Σ row − own part elements. The steps are no barriers: a window of messages is posted and moves
// on. Both ends use the order (k, chunk), so the windows cannot deadlock.
#include "runtime/collectives/alltoall_pairwise.h"

#include "runtime/collectives/alltoall_parts.h"

#include <utility>

namespace kolo {

Schedule alltoall_pairwise(int rank, int size, std::span<const std::uint64_t> counts,
                           const PipelineOptions& options) {
  const AlltoallParts parts(rank, PartMatrix(size, counts));
  ScheduleBuilder builder = parts.begin("alltoall_pairwise");

  MessageWindow sent(options.chunks_in_flight);
  MessageWindow received(options.chunks_in_flight);
  for (int k = 1; k < size; ++k) {
    const int to = (rank + k) % size;
    const Pieces out(parts.outgoing[static_cast<std::size_t>(to)], options.chunk_elements);
    for (std::uint32_t i = 0; i < out.count(); ++i)
      sent.push(builder.send(to, i, input_at(out[i]), {sent.gate()}));

    const int from = (rank + size - k) % size;
    const Pieces in(parts.incoming[static_cast<std::size_t>(from)], options.chunk_elements);
    for (std::uint32_t i = 0; i < in.count(); ++i)
      received.push(builder.receive(from, i, output_at(in[i]), {received.gate()}));
  }
  parts.copy_own(builder);
  return std::move(builder).finish();
}

}  // namespace kolo
