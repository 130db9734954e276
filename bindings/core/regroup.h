// For bindings whose groups make new worlds of processes that are there already (c10d's reconfigure
// and shrink), and end or add single process sets. Exported for them, not installed. The thread
// that calls collectives, unless a function says otherwise.
#pragma once

#include "runtime/bootstrap/rendezvous_method.h"

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// How the processes of the next world meet.
struct Regroup {
  RendezvousMethod way;
  std::string secret = {};  ///< this meeting's; empty: KOLO_SECRET
  /// Deadline of each phase. Default: that of the last start.
  std::optional<std::chrono::seconds> timeout = std::nullopt;
};

/// Leaves the present world, if there is one, and makes the next one as `find` says. `find` gets
/// the options of the last start and may change them, or throw: then nothing has happened. Throws
/// what init() throws; there is no world then.
void regroup(const std::function<Regroup(InitOptions& options)>& find);

/// This process in a meeting by handles: "kolo:<random>:<address>:<port>". The port is kept for
/// it. The same text each time.
KOLO_API std::string meeting_handle();
/// Whether a text has the form of a handle.
KOLO_API bool is_meeting_handle(const std::string& text);
/// regroup(): the next world's ranks are the processes with these handles, in this order; rank 0
/// serves the meeting. Only processes that give the same handles and `number` meet. Preconditions:
/// is_meeting_handle() of each, no two are equal, and meeting_handle() is one of them.
KOLO_API void meet_by_handles(const std::vector<std::string>& handles, std::int64_t number,
                              std::optional<std::chrono::seconds> timeout);
/// regroup(): the next world's ranks are those of the present one but `excluded`, which is sorted.
/// They meet over InitOptions::store. kUnsupported without one.
KOLO_API void meet_without(const std::vector<int>& excluded,
                           std::optional<std::chrono::seconds> timeout);

/// Why ranks that have met as these cannot go on when one is lost, and what helps. After init().
KOLO_API std::string why_not_elastic();

/// Differs from world to world; 0 if there is none. Any thread.
KOLO_API std::uint64_t world_number();
/// The present world's communication has failed, or its process set was aborted. Any thread.
KOLO_API bool has_failed();

/// Ends the calls of this process set on all its ranks, with this rank's number and `reason`; those
/// of other sets go on. Memory of its calls that run stays in use until shutdown(). Any thread.
KOLO_API void abort_process_set(const ProcessSet& set, const std::string& reason);
/// As add_process_set(), but collective over `ranks` alone: the others learn of the set. There may
/// be another set of these ranks.
KOLO_API ProcessSet add_process_set_by_its_ranks(const std::vector<int>& ranks);
/// As remove_process_set(), but by the set's ranks alone, and without a wait: the set goes once all
/// of them have called this. It stays if one of them has an operation in flight.
KOLO_API void remove_process_set_by_its_ranks(const ProcessSet& set);

}  // namespace kolo
