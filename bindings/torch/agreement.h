// What all ranks are to have alike, compared where an object is made: a list of lines, one an item,
// its name and then its fields, each after a tab. Collective; user threads. Private to
// bindings/torch.
#pragma once

#include <kolo/kolo.h>

#include <string>
#include <vector>

namespace kolo {

/// Where a rank's list differs from another's first, in a sentence that names both and the field:
/// "parameter 'w' is Float [2] on rank 0, but Float [3] on rank 1". Empty if nowhere. Pure.
std::string difference(const std::vector<std::string>& first, int first_rank,
                       const std::vector<std::string>& other, int other_rank);

/// Throws on every rank of the set: kMismatch if their lists differ, kInvalidArgument if a rank
/// tells why it has none (`wrong` is not empty), but nothing there, where it is known. What is
/// thrown begins with `who`; `name` is the operation's.
void agree(const std::string& who, const std::string& name, const std::vector<std::string>& lines,
           const std::string& wrong, const ProcessSet& set);

}  // namespace kolo
