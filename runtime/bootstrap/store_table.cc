#include "runtime/bootstrap/store_table.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

Status StoreTable::check_job(const Member& member) const {
  if (member.job.empty() || of_job_.job.empty() || member.job == of_job_.job) return {};
  return KOLO_ERROR(kInvalidArgument,
                    "rank {} ({}) is of the job {}, but the ranks that meet here are of the job {} "
                    "(rank {}, {}); give each job an address of its own (MASTER_PORT, "
                    "KOLO_INIT_METHOD); if both are one job, give all its ranks the same "
                    "KOLO_SECRET",
                    member.rank, member.who, member.job, of_job_.job, of_job_.rank, of_job_.who);
}

Status StoreTable::join(const Member& member) {
  if (failure_) return *failure_;
  if (member.rank >= member.size) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} says that it is rank {} of {}, but ranks are counted from 0 to {}",
                      member.who, member.rank, member.size, member.size - 1);
  }
  KOLO_TRY(check_job(member));
  if (size_ == 0) {
    size_ = member.size;
    size_by_ = fmt::format("rank {} ({})", member.rank, member.who);
  }
  if (member.size != size_) {
    fail(KOLO_ERROR(kMismatch,
                    "ranks disagree on their number: rank {} ({}) says {}, {} says {}; give all "
                    "ranks the same WORLD_SIZE (KOLO_SIZE, InitOptions::size)",
                    member.rank, member.who, member.size, size_by_, size_));
    return *failure_;
  }
  if (const auto same = members_.find(member.rank); same != members_.end()) {
    fail(KOLO_ERROR(kInvalidArgument,
                    "two processes say that they are rank {}: {} and {}; give each a RANK "
                    "(KOLO_RANK, InitOptions::rank) of its own, and each job an address of its "
                    "own (MASTER_PORT, KOLO_INIT_METHOD), or a KOLO_SECRET of its own",
                    member.rank, same->second.who, member.who));
    return *failure_;
  }
  if (of_job_.job.empty()) of_job_ = member;
  members_.emplace(member.rank, member);
  return {};
}

void StoreTable::leave(int rank, bool orderly) {
  const auto member = members_.find(rank);
  if (member == members_.end()) return;
  if (!orderly) {
    fail(KOLO_ERROR(kPeerLost,
                    "rank {} ({}) ended while the ranks were meeting; its own output says why",
                    rank, member->second.who));
  }
  members_.erase(member);
  has_anyone_met_ = has_anyone_met_ || orderly;
}

void StoreTable::give_up(int rank, Error why) {
  const auto member = members_.find(rank);
  if (member == members_.end()) return;
  why.message += fmt::format("; rank {} ({}) says so", rank, member->second.who);
  fail(std::move(why));
  members_.erase(member);
}

void StoreTable::note_gone(int rank) {
  fail(KOLO_ERROR(kPeerLost,
                  "rank {} ended with exit status 0 and did not come to meet the others; see "
                  "whether its program calls kolo::init(), and as often as theirs do",
                  rank));
}

Status StoreTable::set(std::string_view key, std::string value) {
  if (failure_) return *failure_;
  if (!values_.emplace(key, std::move(value)).second) {
    return KOLO_ERROR(kInvalidArgument, "the key '{}' is in the store already", key);
  }
  return {};
}

const std::string* StoreTable::find(std::string_view key) const {
  const auto value = values_.find(key);
  return value == values_.end() ? nullptr : &value->second;
}

Status StoreTable::contribute(std::string_view phase, int rank, std::string value) {
  const std::string key = fmt::format("{}/{}", phase, rank);
  if (const std::string* const given = find(key); given != nullptr && *given == value) return {};
  KOLO_TRY(set(key, std::move(value)));
  const auto count = contributed_.emplace(phase, 0).first;
  ++count->second;
  return {};
}

bool StoreTable::is_complete(std::string_view phase) const {
  const auto count = contributed_.find(phase);
  return count != contributed_.end() && count->second == size_;
}

Gathered StoreTable::contributions(std::string_view phase) const {
  Gathered values;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string* const value = find(fmt::format("{}/{}", phase, rank));
    values.push_back(value != nullptr ? std::optional(*value) : std::nullopt);
  }
  return values;
}

void StoreTable::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

}  // namespace kolo
