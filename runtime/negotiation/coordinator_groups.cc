// Groups in the coordinator: all members run, or none. Progress token holder only.
#include "runtime/negotiation/coordinator.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo {

void Coordinator::note_member(int rank, const std::string& name, const Signature& signature) {
  Group& group = groups_[signature.group];
  const auto index = static_cast<std::size_t>(rank);
  group.announced.resize(static_cast<std::size_t>(size_));
  group.expected.resize(static_cast<std::size_t>(size_));
  ++group.announced[index];
  group.expected[index] = std::max(group.expected[index], signature.group_size);
  if (std::find(group.members.begin(), group.members.end(), name) == group.members.end()) {
    group.members.push_back(name);
  }
}

bool Coordinator::is_complete(const Group& group) const {
  for (std::size_t rank = 0; rank < joined_.size(); ++rank) {
    const bool announced = group.expected[rank] > 0;
    if (announced ? group.announced[rank] < group.expected[rank] : !joined_[rank]) return false;
  }
  return true;
}

void Coordinator::resolve_group(const std::string& name) {
  const Group group = std::move(groups_.at(name));
  groups_.erase(name);
  std::vector<std::pair<std::string, Pending>> members;
  std::optional<std::pair<std::string, Error>> failed;
  for (const std::string& member : group.members) {
    auto node = pending_.extract(member);
    if (node.empty()) continue;
    members.emplace_back(member, std::move(node.mapped()));
    const Pending& pending = members.back().second;
    std::optional<Error> error;
    if (is_complete(pending)) {
      error = what_is_wrong(member, pending);
    } else {
      error = KOLO_ERROR(kMismatch,
                         "{} of group '{}': {}, whose group of that name has other members; every "
                         "rank must submit the same members",
                         tensor(member), name, who_is_missing(pending));
    }
    if (error && !failed) failed.emplace(member, *std::move(error));
  }
  for (const auto& [member, pending] : members) {
    std::optional<Error> error;
    if (failed) {
      error = failed->second;
      if (member != failed->first) {
        error->message = fmt::format("{}: not done, since '{}' of its group '{}' has failed: {}",
                                     tensor(member), failed->first, name, failed->second.message);
      }
    }
    decide(member, pending, std::move(error));
  }
}

void Coordinator::leave_groups(const std::string& name, const Pending& pending) {
  for (const Variant& variant : pending.variants) {
    const auto it = groups_.find(variant.signature.group);
    if (it == groups_.end()) continue;
    Group& group = it->second;
    // Keep `announced` and `expected`, because the rank's other members are still on their way.
    std::erase(group.members, name);
    if (group.members.empty() && group.announced == group.expected) groups_.erase(it);
  }
  // The rest of a group may have waited only for this member.
  for (const Variant& variant : pending.variants) {
    const auto it = groups_.find(variant.signature.group);
    if (it != groups_.end() && is_complete(it->second)) resolve_group(variant.signature.group);
  }
}

}  // namespace kolo
