// Broadcast along a chain. Pure; the progress token holder calls it through the schedule cache.
// Idea: the pipelined chain of van de Geijn et al. ("Collective communication: theory, practice,
// and experience", 2007, §4.2). Every link carries each byte once, in chunks, and all links work at
// the same time. So a large tensor takes count·β + (p−2)·chunk·β instead of log p · count·β.
//
// p = 3, root 0, chunks [0] [1] [2]; time goes down:
//
//   rank 0       rank 1                 rank 2
//   send [0]     get [0]
//   send [1]     get [1]  send [0]      get [0]
//   send [2]     get [2]  send [1]      get [1]
//                         send [2]      get [2]
//
// With n = ⌈count / chunk⌉, the root makes n sends and n copies to its own kOutput. The ranks
// between make n receives and n sends, the last rank n receives. Every rank but the last sends
// count elements. Only a receive and the send that forwards it share memory. A window bounds how
// many messages are posted at a time; it costs no time while a chunk takes longer than its
// completion.
#include "runtime/collectives/broadcast_chain.h"

#include "runtime/base/check.h"
#include "runtime/collectives/split.h"

#include <utility>
#include <vector>

namespace kolo {
Schedule broadcast_chain(int rank, int size, int root, std::uint64_t count,
                         const ChainOptions& options) {
  KOLO_CHECK(options.chunk_elements > 0 && options.chunks_in_flight > 0);
  KOLO_CHECK(root >= 0 && root < size);
  constexpr StepId kNoStep = ScheduleBuilder::kNoStep;
  ScheduleBuilder builder("broadcast_chain", rank, size, count);

  const std::uint64_t granule =
      options.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1;
  const std::uint64_t chunks =
      count / options.chunk_elements + (count % options.chunk_elements != 0 ? 1 : 0);
  KOLO_CHECK(chunks < UINT32_MAX);

  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  const bool sends = next != root;
  const bool is_root = rank == root;
  const auto window = static_cast<std::uint64_t>(options.chunks_in_flight);
  std::vector<StepId> sent(window, kNoStep);
  std::vector<StepId> received(window, kNoStep);

  for (std::uint64_t i = 0; i < chunks; ++i) {
    const Interval part = split({0, count}, chunks, i, granule);
    const Operand input{Space::kInput, -1, part.begin, part.length};
    const Operand output{Space::kOutput, -1, part.begin, part.length};
    const auto tag = static_cast<std::uint32_t>(i);
    StepId& last_received = received[i % window];
    StepId& last_sent = sent[i % window];

    if (!is_root) last_received = builder.receive(previous, tag, output, {last_received});
    if (sends)
      last_sent = builder.send(next, tag, is_root ? input : output,
                               {is_root ? kNoStep : last_received, last_sent});
    if (is_root) builder.copy(input, {output}, Scaling::kNone, {});
  }
  return std::move(builder).finish();
}

}  // namespace kolo
