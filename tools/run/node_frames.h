// NodeFrames: what the kolo-run of node 0 and those of other nodes tell each other in an elastic
// job. Pure. The store passes it on: see kNodeRequest and kEndedRequest of store_wire.h.
#pragma once

#include "runtime/bootstrap/store_wire.h"
#include "tools/run/process.h"
#include "tools/run/roster.h"

#include <optional>
#include <string>
#include <string_view>

namespace kolo::run {

// Orders of node 0 for a process, as Elastic::Orders has them.
inline constexpr std::string_view kStartOrder = "start";  ///< process, rank, local rank and size
inline constexpr std::string_view kEndOrder = "end";      ///< process, here and below
inline constexpr std::string_view kKillOrder = "kill";
inline constexpr std::string_view kDismissOrder = "dismiss";
inline constexpr std::string_view kOverOrder = "over";  ///< see Elastic::is_over()
inline constexpr std::string_view kQuitOrder = "quit";  ///< exit code, why

Fields start_frame(const Place& place);
Fields order_frame(std::string_view order, int process);
Fields over_frame();
Fields quit_frame(int exit_code, const std::string& why);

struct NodeOrder {
  std::string kind;
  Place place = {};   ///< without its host; all but kStartOrder have the process alone
  int exit_code = 0;  ///< with kQuitOrder, as the next
  std::string why = {};
};
/// Nothing for what is no order of this version.
std::optional<NodeOrder> parse_order(const Fields& frame);

/// How a process has ended.
struct ProcessEnd {
  int process = 0;
  Roster::End end = Roster::End::kFailed;
  int pid = 0;
  int exit_code = 0;  ///< as a shell reports it
  std::string how;    ///< "signal 9 (Killed)"
};
ProcessEnd end_of(const Process& process, Roster::End end);
/// "process 3 on node 1 (pid 12) ended with signal 9 (Killed)".
std::string describe(const ProcessEnd& ended, const std::string& host);
/// The frame of kEndedRequest, and its fields after the first three.
Fields ended_frame(const ProcessEnd& ended);
ProcessEnd parse_end(int process, const Fields& told);

}  // namespace kolo::run
