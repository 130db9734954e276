#include "runtime/bootstrap/lobby.h"

#include <algorithm>

namespace kolo {

void Lobby::begin(int size) {
  for (int process = 0; process < size; ++process) {
    living_.insert(process);
    members_.push_back(process);
  }
  generation_ = 1;
}

void Lobby::end(int process, bool is_done) {
  if (is_done) least_ = 1;
  if (is_done && is_member(process)) ++done_;
  has_lost_ |= !is_done;
  living_.erase(process);
  waiting_.erase(process);
}

bool Lobby::is_member(int process) const {
  return std::find(members_.begin(), members_.end(), process) != members_.end();
}

bool Lobby::is_lost() const {
  return generation_ > 0 && done_ == 0 &&
         std::none_of(members_.begin(), members_.end(),
                      [this](int process) { return is_living(process); });
}

bool Lobby::is_left() const {
  return std::any_of(members_.begin(), members_.end(),
                     [this](int process) { return waiting_.count(process) > 0; });
}

int Lobby::newcomers() const {
  return static_cast<int>(std::count_if(waiting_.begin(), waiting_.end(),
                                        [this](int process) { return !is_member(process); }));
}

std::vector<int> Lobby::missing() const {
  if (waiting_.empty()) return {};
  const auto expected =
      generation_ == 0 ? std::vector<int>(living_.begin(), living_.end()) : members_;
  std::vector<int> missing;
  for (const int process : expected)
    if (is_living(process) && waiting_.count(process) == 0) missing.push_back(process);
  return missing;
}

int Lobby::lacking() const { return std::max(0, least_ - static_cast<int>(waiting_.size())); }

std::optional<std::vector<int>> Lobby::convene() {
  if (waiting_.empty() || lacking() > 0 || !missing().empty()) return std::nullopt;
  std::vector<int> next;
  for (const int member : members_)
    if (waiting_.erase(member) > 0) next.push_back(member);
  if (next.empty() && done_ > 0) return std::nullopt;
  next.insert(next.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  members_ = next;
  ++generation_;
  return next;
}

}  // namespace kolo
