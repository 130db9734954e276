// Compares, when an object is made, lists that must be the same on all ranks. A list has one line
// per item: its name and then its fields, each after a tab. Collective; user threads. Private to
// bindings/torch.
#pragma once

#include <kolo/kolo.h>

#include <functional>
#include <string>
#include <vector>

namespace kolo {

/// Describes the first difference between two ranks' lists, with both ranks and the field:
/// "parameter 'w' is Float [2] on rank 0, but Float [3] on rank 1". Empty if they are equal. Pure.
std::string difference(const std::vector<std::string>& first, int first_rank,
                       const std::vector<std::string>& other, int other_rank);

/// Collective over `set`. `list` makes this rank's list and may throw. Throws on every rank:
/// kMismatch if the lists differ, or the error of the first rank whose `list` throws, with its
/// number. Messages begin with `who`; `name` is the operation's name.
void agree(const std::string& who, const std::string& name, const ProcessSet& set,
           const std::function<std::vector<std::string>()>& list);

}  // namespace kolo
