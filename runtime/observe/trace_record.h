// What the timeline records: one value for each tensor, operation, step, wait and counter. The
// holder of the progress token makes a record when the thing has ended; the writer thread turns the
// record into JSON. Records are trivially copyable: their words are string literals, and any other
// text travels beside the record.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

namespace kolo {

/// Nanoseconds of std::chrono::steady_clock; 0: this point was not reached.
using TraceTime = std::int64_t;

inline TraceTime trace_time(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
inline TraceTime trace_now() { return trace_time(std::chrono::steady_clock::now()); }

/// The stages of one tensor. Text: its name.
struct TensorRecord {
  std::string_view kind = "";   ///< "allreduce"
  std::string_view type = "";   ///< "float32"
  std::string_view error = "";  ///< code of the failure; empty: success
  std::uint64_t bytes = 0;
  std::uint32_t process_set = 0;
  TraceTime submitted = 0;  ///< by the user's thread
  TraceTime drained = 0;    ///< taken over by the cycle
  TraceTime agreed = 0;     ///< submitted on all ranks
  TraceTime started = 0;    ///< its schedule began
  TraceTime ended = 0;
};

/// One schedule that ran for one or more tensors. Text: the algorithm, then the tensors' names,
/// each after a zero byte.
struct OperationRecord {
  std::string_view kind = "";
  std::string_view type = "";
  std::string_view mode = "";   ///< "named", "ordered", "message"
  std::string_view error = "";  ///< code of the failure; empty: success
  std::uint64_t sequence = 0;
  std::uint32_t process_set = 0;
  std::uint32_t tensors = 1;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  bool blocking = false;  ///< the caller waited from start to end
  TraceTime started = 0;
  TraceTime ended = 0;
  std::int64_t pack_ns = 0;  ///< local steps that copy from the input
  /// Local steps that sum, including sums that read the input in place.
  std::int64_t reduce_ns = 0;
  std::int64_t unpack_ns = 0;  ///< all other local copies, such as results to the output
};

/// One step of a schedule.
struct StepRecord {
  std::string_view kind = "";  ///< "send", "receive", "notify", "await", "pack", "reduce", "unpack"
  int peer = -1;               ///< rank within the schedule; −1: a local step
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  TraceTime begun = 0;
  TraceTime ended = 0;
};

/// A user's thread waited for a Work and meanwhile drove the cycle.
struct WaitRecord {
  TraceTime begun = 0;
  TraceTime ended = 0;
};

/// Bytes and operations in flight from `at` on.
struct CounterRecord {
  TraceTime at = 0;
  std::uint64_t bytes = 0;
  std::uint32_t operations = 0;
};

/// A single event. Text: what happened.
struct NoteRecord {
  TraceTime at = 0;
};

using TraceRecord =
    std::variant<TensorRecord, OperationRecord, StepRecord, WaitRecord, CounterRecord, NoteRecord>;
static_assert(std::is_trivially_copyable_v<TraceRecord>);

}  // namespace kolo
