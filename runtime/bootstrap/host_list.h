// Parses the lists that Slurm writes: node lists and task counts. Also derives ports from job
// names. Pure. Used to find the rendezvous method, and by kolo-run.
#pragma once

#include <kolo/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// "n[1-3,7],m05" → n1 n2 n3 n7 m05; "r[1-2]n[08-10]" → r1n08 … r2n10. Keeps order and leading
/// zeros. kInvalidArgument names the list and its malformed item.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

/// "3,1(x3)" → 3 1 1 1. kInvalidArgument names the list and its malformed item.
Result<std::vector<int>> expand_task_counts(std::string_view counts);

/// A port that every process derives from the same key (job and step): 20000 to 32767, below the
/// ports that systems assign to connecting sockets.
std::uint16_t port_from_key(std::string_view key);

}  // namespace kolo
