// The coordinator's table of announcements. Progress token holder only. Groups are in
// coordinator_groups.cc, late ranks in coordinator_late.cc.
#include "runtime/negotiation/coordinator.h"

#include "runtime/base/check.h"
#include "runtime/submission/split_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo {
namespace {

/// Whether the result is meaningful if joined ranks contribute zeros.
bool takes_joined_ranks(const Signature& signature) {
  return signature.kind == OperationKind::kAllreduce &&
         (signature.op == ReduceOp::kSum || signature.op == ReduceOp::kAverage);
}

}  // namespace

Coordinator::Coordinator(std::vector<int> world_ranks, std::string where)
    : world_ranks_(std::move(world_ranks)),
      where_(std::move(where)),
      size_(static_cast<int>(world_ranks_.size())),
      joined_(world_ranks_.size()) {}

std::string Coordinator::rank_list(const std::vector<int>& ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(world_ranks_[static_cast<std::size_t>(rank)]);
  return fmt::format("{} {}", names.size() == 1 ? "rank" : "ranks", fmt::join(names, ", "));
}

std::string Coordinator::tensor(const std::string& name) const {
  return fmt::format("tensor '{}'{}", name, where_);
}

std::string Coordinator::tensor(const std::string& name, const Pending& pending) const {
  if (pending.steps.size() != 1) return tensor(name);
  return fmt::format("{} of step {}", tensor(name), pending.steps.begin()->first);
}

Status Coordinator::ready(int rank, const Request& request, Clock::time_point now) {
  last_sign_ = now;
  join_reported_ = false;
  if (request.signature.kind == OperationKind::kJoin) return join(rank);
  if (!late_.empty() && answer_late(rank, request, now)) return {};
  const std::string& name = request.name;
  auto [it, is_new] = pending_.try_emplace(name);
  Pending& pending = it->second;
  if (is_new) {
    pending.is_ready.resize(static_cast<std::size_t>(size_));
    pending.since = now;
  }
  if (pending.is_ready[static_cast<std::size_t>(rank)]) {
    return KOLO_ERROR(kInternal, "rank {} announced {} twice", rank, tensor(name));
  }
  pending.add(rank, request);
  if (!request.signature.group.empty()) note_member(rank, name, request.signature);
  settle(name);
  return {};
}

void Coordinator::Pending::add(int rank, const Request& request) {
  const auto index = static_cast<std::size_t>(rank);
  is_ready[index] = true;
  ++ready_count;
  if (!request.absent) ++contributors;
  if (!request.complaint.empty()) complaints.emplace(rank, request.complaint);
  if (request.step != 0) steps[request.step].push_back(rank);
  if (is_row_wise(request.signature.kind)) {
    splits.resize(is_ready.size());
    splits[index] = request.splits;
  }
  const auto variant = std::find_if(variants.begin(), variants.end(), [&](const Variant& v) {
    return v.signature == request.signature;
  });
  if (variant != variants.end()) {
    variant->ranks.push_back(rank);
  } else {
    variants.push_back({request.signature, {rank}});
  }
}

Status Coordinator::join(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (joined_[index]) return KOLO_ERROR(kInternal, "rank {} joined twice", rank);
  joined_[index] = true;
  // A joined rank will not make the calls that it is late for.
  for (auto& [name, late] : late_) late[index].clear();
  std::erase_if(late_, [](const auto& item) { return nobody_is(item.second); });
  last_joined_ = world_ranks_[index];
  ++joined_count_;

  // Tensors that waited only for this rank are complete now. Settle the longest waiting first.
  std::vector<std::pair<Clock::time_point, std::string>> names;
  for (const auto& [name, pending] : pending_) names.emplace_back(pending.since, name);
  std::sort(names.begin(), names.end());
  for (const auto& [since, name] : names) {
    if (pending_.contains(name)) settle(name);
  }
  if (joined_count_ == size_) end_join(std::nullopt);
  return {};
}

void Coordinator::end_join(std::optional<Error> error) {
  Response response{kJoinName, {}, size_, std::move(error)};
  response.signature.kind = OperationKind::kJoin;
  response.result = last_joined_;
  for (int rank = 0; rank < size_; ++rank) {
    if (!joined_[static_cast<std::size_t>(rank)]) response.missing.push_back(rank);
  }
  decided_.push_back(std::move(response));
  joined_.assign(joined_.size(), false);
  joined_count_ = 0;
}

std::string Coordinator::who_has_joined(Clock::time_point now) const {
  std::vector<int> here;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank)
    (joined_[static_cast<std::size_t>(rank)] ? here : missing).push_back(rank);
  return fmt::format("join(){}: called by {}; not by {}, silent for {} s", where_, rank_list(here),
                     rank_list(missing),
                     std::chrono::duration_cast<std::chrono::seconds>(now - last_sign_).count());
}

std::vector<int> Coordinator::not_ready(const Pending& pending) const {
  std::vector<int> ranks;
  if (pending.ready_count == size_) return ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!pending.is_ready[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> Coordinator::missing(const Pending& pending) const {
  std::vector<int> ranks = not_ready(pending);
  std::erase_if(ranks, [&](int rank) {
    return joined_[static_cast<std::size_t>(rank)] || is_outsider(rank, pending);
  });
  return ranks;
}

bool Coordinator::is_outsider(int rank, const Pending& pending) {
  const Signature& signature = pending.variants.front().signature;
  return is_by_its_ranks(signature) &&
         std::find(signature.shape.begin(), signature.shape.end(), rank) == signature.shape.end();
}

bool Coordinator::is_complete(const Pending& pending) const {
  if (pending.ready_count == size_) return true;
  const bool may_lack_ranks =
      joined_count_ > 0 || is_by_its_ranks(pending.variants.front().signature);
  return may_lack_ranks && missing(pending).empty();
}

void Coordinator::settle(const std::string& name) {
  const auto it = pending_.find(name);
  const std::vector<Variant>& variants = it->second.variants;
  const bool one_group = std::all_of(variants.begin(), variants.end(), [&](const Variant& v) {
    return v.signature.group == variants.front().signature.group;
  });
  if (one_group && !variants.front().signature.group.empty()) {
    const std::string group = variants.front().signature.group;
    if (is_complete(groups_.at(group))) resolve_group(group);
    return;
  }
  if (!is_complete(it->second)) return;
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  decide(name, pending, what_is_wrong(name, pending));
  leave_groups(name, pending);
}

std::optional<Error> Coordinator::what_is_wrong(const std::string& name,
                                                const Pending& pending) const {
  if (!pending.complaints.empty()) {
    const auto& [rank, complaint] = *pending.complaints.begin();
    return KOLO_ERROR(kInvalidArgument, "{}: {}: {}", tensor(name), rank_list({rank}), complaint);
  }
  if (pending.steps.size() > 1) return steps_differ(name, pending);
  if (pending.variants.size() > 1) return mismatch(name, pending);
  const Signature& signature = pending.variants.front().signature;
  if (pending.ready_count == size_ || takes_joined_ranks(signature)) return std::nullopt;
  std::vector<int> joined = not_ready(pending);
  std::erase_if(joined, [&](int rank) { return is_outsider(rank, pending); });
  if (joined.empty()) return std::nullopt;
  const bool reduces = signature.kind == OperationKind::kAllreduce;
  return KOLO_ERROR(
      kInvalidArgument,
      "{}: {} joined, and {} cannot be done without; only allreduce with sum or average can, so "
      "join() after the last other operation",
      tensor(name), rank_list(joined) + (joined.size() == 1 ? " has" : " have"),
      reduces ? fmt::format("allreduce with {}", to_string(signature.op))
              : std::string(to_string(signature.kind)));
}

Error Coordinator::mismatch(const std::string& name, const Pending& pending) const {
  // Ranks announce in any order; the message must not depend on it.
  std::vector<Variant> variants = pending.variants;
  for (Variant& variant : variants) std::sort(variant.ranks.begin(), variant.ranks.end());
  std::sort(variants.begin(), variants.end(),
            [](const Variant& a, const Variant& b) { return a.ranks.front() < b.ranks.front(); });
  const Variant& a = variants[0];
  const Variant& b = variants[1];
  const SignatureDifference differ = difference(a.signature, b.signature);
  return KOLO_ERROR(
      kMismatch,
      "{}: {} submitted {} {}, but {} submitted {} {}; every rank must submit the same {} under "
      "one name",
      tensor(name), rank_list(a.ranks), differ.field, differ.a, rank_list(b.ranks), differ.field,
      differ.b, differ.field);
}

Error Coordinator::steps_differ(const std::string& name, const Pending& pending) const {
  std::string where;
  std::size_t most = 0;
  for (const auto& [step, ranks] : pending.steps) most = std::max(most, ranks.size());
  std::vector<int> fewer;  // ranks at steps that have fewer ranks than `most`
  for (const auto& [step, its] : pending.steps) {
    std::vector<int> ranks = its;
    std::sort(ranks.begin(), ranks.end());
    where += fmt::format("{}{} {} at step {}", where.empty() ? "" : ", ", rank_list(ranks),
                         ranks.size() == 1 ? "is" : "are", step);
    if (ranks.size() < most) fewer.insert(fewer.end(), ranks.begin(), ranks.end());
  }
  const auto told =
      std::accumulate(pending.steps.begin(), pending.steps.end(), std::size_t{0},
                      [](std::size_t sum, const auto& some) { return sum + some.second.size(); });
  const bool is_known = told == most + fewer.size();
  std::sort(fewer.begin(), fewer.end());
  return KOLO_ERROR(
      kMismatch, "{}: {}: {} left out or repeated a batch; every rank must make the same steps",
      tensor(name), where,
      !is_known ? "one of them has" : rank_list(fewer) + (fewer.size() == 1 ? " has" : " have"));
}

void Coordinator::decide(const std::string& name, const Pending& pending,
                         std::optional<Error> error) {
  Response response{name, pending.variants.front().signature, pending.contributors,
                    std::move(error)};
  response.participants = pending.ready_count;
  if (!response.error) response.splits = splits_of_all(pending);
  response.missing = not_ready(pending);
  if (pending.steps.size() > 1)
    response.result = static_cast<std::int64_t>(pending.steps.rbegin()->first);
  decided_.push_back(std::move(response));
}

SplitTable Coordinator::splits_of_all(const Pending& pending) const {
  if (pending.splits.empty()) return {};
  const Signature& signature = pending.variants.front().signature;
  const auto root = std::find(world_ranks_.begin(), world_ranks_.end(), signature.root);
  return table_of(signature.kind, pending.splits,
                  static_cast<std::size_t>(root - world_ranks_.begin()));
}

std::vector<Response> Coordinator::take_decisions() { return std::exchange(decided_, {}); }

}  // namespace kolo
