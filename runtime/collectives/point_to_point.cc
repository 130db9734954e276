// Send and receive. Pure; the progress token holder calls it through the schedule cache when an
// operation starts.
//
//   from             to
//   send [0]         get [0]
//   send [1]         get [1]         a window of messages is posted at a time
//   …                …
//
// ⌈count / chunk⌉ messages with `count` elements.
#include "runtime/collectives/point_to_point.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

Schedule point_to_point(int rank, int size, int from, int to, std::uint64_t count,
                        const PipelineOptions& options) {
  KOLO_CHECK(from >= 0 && from < size && to >= 0 && to < size);
  ScheduleBuilder builder("point_to_point", rank, size, rank == from ? count : 0,
                          rank == to ? count : 0);
  const Pieces pieces({0, count}, options.chunk_elements);
  if (from == to) {
    if (rank == from && count > 0)
      builder.copy(input_at({0, count}), {output_at({0, count})}, Scaling::kNone, {});
    return std::move(builder).finish();
  }
  MessageWindow window(options.chunks_in_flight);
  for (std::uint32_t i = 0; i < pieces.count(); ++i) {
    if (rank == from) window.push(builder.send(to, i, input_at(pieces[i]), {window.gate()}));
    if (rank == to) window.push(builder.receive(from, i, output_at(pieces[i]), {window.gate()}));
  }
  return std::move(builder).finish();
}

}  // namespace kolo
