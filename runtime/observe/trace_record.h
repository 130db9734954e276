// What the timeline records: one value for each tensor, operation, step, wait and counter. Made by
// the progress token's holder when the thing has ended, turned into JSON by the writer thread.
// Trivially copyable: words are string literals, and what is not travels as text beside the record.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

namespace kolo {

/// Nanoseconds of std::chrono::steady_clock; 0: that point was not reached.
using TraceTime = std::int64_t;

inline TraceTime trace_time(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
inline TraceTime trace_now() { return trace_time(std::chrono::steady_clock::now()); }

/// One tensor's way through the stages. Text: its name.
struct TensorRecord {
  std::string_view kind = "";   ///< "allreduce"
  std::string_view type = "";   ///< "float32"
  std::string_view error = "";  ///< the code of its failure; empty: it succeeded
  std::uint64_t bytes = 0;
  std::uint32_t process_set = 0;
  TraceTime submitted = 0;  ///< by the user's thread
  TraceTime drained = 0;    ///< seen by the cycle
  TraceTime agreed = 0;     ///< all ranks have it
  TraceTime started = 0;    ///< its schedule began
  TraceTime ended = 0;
};

/// One schedule that ran for one or several tensors. Text: the algorithm, then the tensors' names,
/// each behind a zero byte.
struct OperationRecord {
  std::string_view kind = "";
  std::string_view type = "";
  std::string_view door = "";   ///< "named", "ordered", "message"
  std::string_view error = "";  ///< the code of its failure; empty: it succeeded
  std::uint64_t sequence = 0;
  std::uint32_t process_set = 0;
  std::uint32_t tensors = 1;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  bool blocking = false;  ///< its caller did nothing else from start to end
  TraceTime started = 0;
  TraceTime ended = 0;
  std::int64_t pack_ns = 0;    ///< local steps that copy out of the input
  std::int64_t reduce_ns = 0;  ///< local steps that sum; they read the input where it lies
  std::int64_t unpack_ns = 0;  ///< other copies: results to where they belong
};

/// One step of a schedule.
struct StepRecord {
  std::string_view kind = "";  ///< "send", "receive", "notify", "await", "pack", "reduce", "unpack"
  int peer = -1;               ///< rank within the schedule; -1: a local step
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  TraceTime begun = 0;
  TraceTime ended = 0;
};

/// A user's thread waited for a Work and drove the cycle meanwhile.
struct WaitRecord {
  TraceTime begun = 0;
  TraceTime ended = 0;
};

/// From here on so much is under way.
struct CounterRecord {
  TraceTime at = 0;
  std::uint64_t bytes = 0;
  std::uint32_t operations = 0;
};

/// Something that happened once. Text: what.
struct NoteRecord {
  TraceTime at = 0;
};

using TraceRecord =
    std::variant<TensorRecord, OperationRecord, StepRecord, WaitRecord, CounterRecord, NoteRecord>;
static_assert(std::is_trivially_copyable_v<TraceRecord>);

}  // namespace kolo
