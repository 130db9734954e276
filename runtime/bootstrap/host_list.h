// The lists of hosts and counts that schedulers write: Slurm's node lists and task counts, PBS's
// node file. Pure. Used by the way in and by kolo-run.
#pragma once

#include <kolo/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// "n[1-3,7],m05" → n1 n2 n3 n7 m05; "r[1-2]n[08-10]" → r1n08 … r2n10. Order and leading zeros are
/// kept. kInvalidArgument names the list and what is wrong with it.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

/// "3,1(x3)" → 3 1 1 1. kInvalidArgument as above.
Result<std::vector<int>> expand_task_counts(std::string_view counts);

/// A port that everybody finds who knows the same key (job and step): 20000 to 32767, below those
/// that systems give out.
std::uint16_t port_from_key(std::string_view key);

}  // namespace kolo
